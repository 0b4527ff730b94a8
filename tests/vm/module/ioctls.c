/* Requests of /dev/vgpu0 that nobody sane would make: any number, any structure, any address, from two threads at once,
 * ended at any moment. What must hold: the kernel's log stays empty (the script looks), and the driver works after it.
 */
#define _GNU_SOURCE
#include "tests/vm/module/ioctls.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/vm/module/client.h"

enum { kMappings = 8, kMemoryBytes = 1 << 20, kStepsAProcess = 400 };

/* The bytes before it name commands of the sink's. */
enum { kFirstByte = sizeof(struct vgpu_ring_header) };

struct fuzzer {
  int fd;
  uint64_t random;
  char* memory;              /* what regions are taken from */
  void* mappings[kMappings]; /* of rings and of the watch page */
  size_t lengths[kMappings];
};

static uint64_t next(struct fuzzer* f) { /* xorshift64 */
  f->random ^= f->random << 13;
  f->random ^= f->random >> 7;
  f->random ^= f->random << 17;
  return f->random;
}

static uint64_t value(struct fuzzer* f) {
  static const uint64_t kLikely[] = {
      0,          1,          2,          4095,       4096,  8192,         1 << 20,    VGPU_RING_BYTES,
      1ull << 32, 1ull << 40, 1ull << 47, 1ull << 63, ~0ull, ~0ull - 4095, 0xffffffff, 77};
  switch (next(f) % 4) {
    case 0:
      return kLikely[next(f) % (sizeof(kLikely) / sizeof(kLikely[0]))];
    case 1:
      return (uint64_t)f->memory + next(f) % (kMemoryBytes / 4096) * 4096;
    case 2:
      return next(f) % 16;
    default:
      return next(f) >> next(f) % 60;
  }
}

static void request(struct fuzzer* f) {
  static const unsigned long kKnown[] = {VGPU_IOC_ADD_RING, VGPU_IOC_DROP_RING, VGPU_IOC_PIN,  VGPU_IOC_UNPIN,
                                         VGPU_IOC_KICK,     VGPU_IOC_WAIT,      VGPU_IOC_PING, VGPU_IOC_PIN_WATCHED,
                                         VGPU_IOC_QUERY,    VGPU_IOC_HELLO};
  unsigned long number = kKnown[next(f) % (sizeof(kKnown) / sizeof(kKnown[0]))];
  if (next(f) % 16 == 0)
    number = next(f) % 2 ? (unsigned long)next(f) : _IOC(next(f) % 4, 'V', next(f) % 16, next(f) % 512);
  union {
    uint64_t words[64];
    struct vgpu_ioc_wait wait;
    struct vgpu_ioc_region region; /* also what a watched one begins with */
  } asked;
  for (unsigned i = 0; i < 64; i++) asked.words[i] = value(f);
  if (number == VGPU_IOC_WAIT) asked.wait.timeout_ms = next(f) % 3;
  if ((number == VGPU_IOC_PIN || number == VGPU_IOC_PIN_WATCHED) && next(f) % 4) {
    asked.region.va = (uint64_t)f->memory + next(f) % 200 * 4096;
    asked.region.bytes = (1 + next(f) % 40) * 4096;
  }
  void* where = &asked;
  if (next(f) % 32 == 0) where = (void*)value(f);
  (void)ioctl(f->fd, number, where);
}

static void map(struct fuzzer* f) {
  const unsigned slot = next(f) % kMappings;
  if (f->mappings[slot]) munmap(f->mappings[slot], f->lengths[slot]);
  const uint64_t offset = next(f) % 4 ? next(f) % 4 * VGPU_RING_BYTES : next(f) % 2 ? VGPU_WATCH_OFFSET : value(f);
  f->lengths[slot] = next(f) % 4 ? VGPU_RING_BYTES : 1 + value(f) % (4 * VGPU_RING_BYTES);
  const int protection = next(f) % 8, flags = next(f) % 8 ? MAP_SHARED : MAP_PRIVATE;
  f->mappings[slot] = mmap(NULL, f->lengths[slot], protection, flags, f->fd, (off_t)offset);
  if (f->mappings[slot] == MAP_FAILED) f->mappings[slot] = NULL;
  if (f->mappings[slot] && offset < VGPU_WATCH_OFFSET && (protection & PROT_WRITE) &&
      f->lengths[slot] >= VGPU_RING_BYTES)
    memset((char*)f->mappings[slot] + kFirstByte, (int)next(f), 4096 - kFirstByte);
}

/* What ends watches and moves pages under pins. */
static void memory(struct fuzzer* f) {
  char* at = f->memory + next(f) % 200 * 4096;
  const size_t bytes = (1 + next(f) % 40) * 4096;
  switch (next(f) % 5) {
    case 0:
      madvise(at, bytes, MADV_DONTNEED);
      break;
    case 1:
      mprotect(at, bytes, next(f) % 2 ? PROT_READ : PROT_READ | PROT_WRITE);
      break;
    case 2:
      mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      break;
    case 3:
      madvise(at, bytes, MADV_HUGEPAGE);
      break;
    default:
      munmap(at, bytes);
  }
}

static void* steps(void* argument) {
  struct fuzzer f = *(struct fuzzer*)argument;
  f.random = f.random * 6364136223846793005ull + (uint64_t)pthread_self();
  memset(f.mappings, 0, sizeof(f.mappings));
  for (int i = 0; i < kStepsAProcess; i++) switch (next(&f) % 8) {
      case 0:
        map(&f);
        break;
      case 1:
        memory(&f);
        break;
      default:
        request(&f);
    }
  return NULL;
}

static void process(uint64_t seed) {
  struct fuzzer f = {.fd = open("/dev/vgpu0", O_RDWR), .random = seed | 1};
  struct vgpu_ioc_hello h;
  f.memory = mmap(NULL, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (f.fd < 0 || f.memory == MAP_FAILED) exit(1);
  if (seed % 8) hello(f.fd, kHostSchemaByte, &h);
  pthread_t other;
  pthread_create(&other, NULL, steps, &f);
  f.random ^= seed << 32;
  if (seed % 16 == 3) close(dup(f.fd));
  steps(&f);
  if (seed % 2) pthread_join(other, NULL); /* else it is ended in the middle of something */
  exit(0);
}

void fuzz_ioctls(double seconds, uint64_t seed) {
  const double begin = now();
  unsigned long processes = 0;
  while (now() - begin < seconds) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) process(seed * 1000003 + processes);
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    /* Memory that a step has unmapped may be touched by another: a signal is the fuzzer's own fault. */
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
    processes++;
  }
  printf("ioctls: %lu processes with %d requests each\n", processes, 2 * kStepsAProcess);
  struct client c = start();
  stop(&c);
}
