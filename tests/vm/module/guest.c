/* Checks /dev/vgpu0 from inside the guest against sink.cc. Prints a line per check; exits 1 if one failed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/vm/module/client.h"
#include "tests/vm/module/ioctls.h"

int failures;

static void test_hello(void) {
  int fd = open("/dev/vgpu0", O_RDWR | O_CLOEXEC);
  struct vgpu_ioc_hello h;
  struct vgpu_ioc_ring ring;
  FAILS_WITH(ioctl(fd, VGPU_IOC_ADD_RING, &ring), ENOTCONN);
  FAILS_WITH(ioctl(fd, VGPU_IOC_KICK), ENOTCONN);
  FAILS_WITH(hello(fd, 1, &h), EPROTO);
  CHECK(h.host_schema.major == 0x101 * kHostSchemaByte);
  CHECK(h.host_schema.hash[sizeof(h.host_schema.hash) - 1] == kHostSchemaByte);
  FAILS_WITH(ioctl(fd, VGPU_IOC_ADD_RING, &ring), ENOTCONN);
  CHECK(hello(fd, kHostSchemaByte, &h) == 0 && h.window_base == VGPU_WINDOW_BASE_0);
  FAILS_WITH(hello(fd, kHostSchemaByte, &h), EALREADY);
  CHECK(ioctl(fd, VGPU_IOC_PING) == 0);
  FAILS_WITH(ioctl(fd, _IO('V', 99)), ENOTTY);
  FAILS_WITH(ioctl(fd, VGPU_IOC_ADD_RING, (void*)8), EFAULT);
  close(fd);
}

static void test_rings(void) {
  struct client c = start();
  struct vgpu_ioc_ring one, two;
  CHECK(ioctl(c.fd, VGPU_IOC_ADD_RING, &one) == 0 && ioctl(c.fd, VGPU_IOC_ADD_RING, &two) == 0 && one.id != two.id);
  char* p = map_ring(c.fd, one.id);
  CHECK(p != MAP_FAILED);
  for (unsigned i = 0; i < VGPU_RING_BYTES; i++) failures += p[i] != 0;
  memset(p, 0x11, VGPU_RING_BYTES);
  char* again = map_ring(c.fd, one.id);
  CHECK(again != MAP_FAILED && again[VGPU_RING_BYTES - 1] == 0x11);
  FAILS_WITH((long)mmap(NULL, VGPU_RING_BYTES / 2, PROT_READ, MAP_SHARED, c.fd, 0), EINVAL);
  FAILS_WITH((long)mmap(NULL, VGPU_RING_BYTES, PROT_READ, MAP_PRIVATE, c.fd, 0), EINVAL);
  FAILS_WITH((long)mmap(NULL, VGPU_RING_BYTES, PROT_READ, MAP_SHARED, c.fd, 4096), EINVAL);
  FAILS_WITH((long)map_ring(c.fd, 77), ENOENT);
  CHECK(ioctl(c.fd, VGPU_IOC_DROP_RING, &one) == 0);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_DROP_RING, &one), ENOENT);
  CHECK(p[0] == 0x11); /* still mapped, no longer a ring */
  munmap(p, VGPU_RING_BYTES);
  munmap(again, VGPU_RING_BYTES);
  stop(&c);
}

static void test_pages(void) {
  enum { kPages = 8192 };
  struct client c = start();
  char* memory = mmap(NULL, kPages * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* other = mmap(NULL, kPages * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t sum = 0;
  madvise(memory, kPages * 4096ul, MADV_NOHUGEPAGE);
  madvise(other, kPages * 4096ul, MADV_NOHUGEPAGE);
  /* Taking turns, out of order, scatters the pages. */
  for (uint64_t i = 0; i < kPages; i++) {
    uint64_t page = i * 2654435761u % kPages;
    memcpy(memory + page * 4096, &(uint64_t){page * page + 7}, 8);
    other[page * 4096] = 1;
  }
  for (uint64_t i = 0; i < kPages; i++) sum = sum * kSumFactor + i * i + 7;
  double begin = now();
  struct vgpu_ioc_region r = region_of(memory, kPages * 4096ul, VGPU_REGION_DEVICE_VISIBLE);
  CHECK(ioctl(c.fd, VGPU_IOC_PIN, &r) == 0);
  double pinned = now();
  struct KickResult k = kick(&c);
  CHECK(k.sum == sum);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kPages; i++) wrong += memcmp(memory + i * 4096, memory + i * 4096 + 8, 8) != 0;
  CHECK(wrong == 0);
  CHECK(ioctl(c.fd, VGPU_IOC_UNPIN, &r) == 0);
  printf("pages: %d MiB in %llu segments, pinned in %.2f ms\n", kPages / 256, (unsigned long long)k.segments,
         (pinned - begin) * 1e3);
  CHECK(kick(&c).segments == 0);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_UNPIN, &r), ENOENT);
  munmap(memory, kPages * 4096ul);
  munmap(other, kPages * 4096ul);
  stop(&c);
}

static void test_pin_errors(void) {
  struct client c = start();
  char* p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* read_only = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct vgpu_ioc_region bad[] = {
      region_of(p, 0, 0),      region_of(p + 1, 4096, 0),          region_of(p, 100, 0),
      region_of(p, 4096, 128), region_of((void*)-8192l, 16384, 0), region_of(p, 1ul << 63, 0)};
  for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) FAILS_WITH(ioctl(c.fd, VGPU_IOC_PIN, &bad[i]), EINVAL);
  struct vgpu_ioc_region r = region_of(read_only, 65536, 0);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_PIN, &r), EFAULT);
  r.flags = VGPU_REGION_READ_ONLY;
  CHECK(ioctl(c.fd, VGPU_IOC_PIN, &r) == 0);
  munmap(p + 32768, 4096); /* a hole */
  r = region_of(p, 65536, 0);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_PIN, &r), EFAULT);
  r = region_of(p, 1ul << 40, 0);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_PIN, &r), ENOMEM);
  munmap(p, 65536);
  munmap(read_only, 65536);
  stop(&c);
}

static void on_alarm(int number) { (void)number; }

static void test_wait(void) {
  struct client c = start();
  double begin = now();
  FAILS_WITH(wait_event(&c, 100), ETIMEDOUT);
  CHECK(now() - begin > 0.09 && now() - begin < 3);
  FAILS_WITH(wait_event(&c, 0), ETIMEDOUT);
  struct sigaction action = {.sa_handler = on_alarm};
  sigaction(SIGALRM, &action, NULL);
  ualarm(100000, 0);
  FAILS_WITH(wait_event(&c, 60000), EINTR);
  begin = now();
  for (int i = 0; i < 200; i++) kick(&c);
  printf("kick and wake: %.0f us\n", (now() - begin) / 200 * 1e6);
  stop(&c);
}

static void test_fork(void) {
  struct client c = start();
  pid_t child = fork();
  if (child == 0) {
    struct vgpu_ioc_region r = region_of(&c, 4096, 0);
    int bad = 0;
    bad |= !(ioctl(c.fd, VGPU_IOC_PING) == -1 && errno == EBADF);
    bad |= !(ioctl(c.fd, VGPU_IOC_PIN, &r) == -1 && errno == EBADF);
    bad |= !(map_ring(c.fd, 0) == MAP_FAILED && errno == EBADF);
    bad |= !(msync((void*)c.ring, VGPU_RING_BYTES, MS_ASYNC) == -1 && errno == ENOMEM); /* not inherited */
    _exit(bad);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(kick(&c).processes == 1);
  stop(&c);
}

/* And stays so: a process that was killed as it began may come and go a little later. */
static void wait_for_processes(struct client* c, unsigned count) {
  int in_a_row = 0;
  for (int i = 0; i < 500 && in_a_row < 10; i++) {
    in_a_row = kick(c).processes == count ? in_a_row + 1 : 0;
    usleep(20000);
  }
  CHECK(in_a_row == 10);
}

/* A process that is killed while it has rings, pinned memory and a forked child that keeps the descriptor. */
static void test_death(void) {
  struct client c = start();
  int ready[2];
  CHECK(pipe(ready) == 0);
  pid_t victim = fork();
  if (victim == 0) {
    struct client mine = start();
    char* p = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct vgpu_ioc_region r = region_of(p, 8 << 20, 0);
    struct vgpu_ioc_watched watched = {.region = r};
    CHECK(ioctl(mine.fd, VGPU_IOC_PIN, &r) == 0);
    CHECK(ioctl(mine.fd, VGPU_IOC_PIN_WATCHED, &watched) == 0);
    pid_t holder = fork();
    if (holder == 0) {
      sleep(30);
      _exit(0);
    }
    if (write(ready[1], &holder, sizeof(holder)) != sizeof(holder)) _exit(1);
    for (;;) kick(&mine);
  }
  pid_t holder = 0;
  CHECK(read(ready[0], &holder, sizeof(holder)) == sizeof(holder));
  CHECK(kick(&c).processes == 2);
  kill(victim, SIGKILL);
  waitpid(victim, NULL, 0);
  wait_for_processes(&c, 1);
  kill(holder, SIGKILL);
  stop(&c);
}

static void* churn(void* argument) {
  struct client* c = argument;
  char* p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < 40; i++) {
    struct vgpu_ioc_region r = region_of(p, 1 << 20, 0);
    struct vgpu_ioc_ring ring;
    struct vgpu_ioc_watched watched = {.region = r};
    CHECK(ioctl(c->fd, VGPU_IOC_PIN, &r) == 0);
    CHECK(ioctl(c->fd, VGPU_IOC_PIN_WATCHED, &watched) == 0);
    CHECK(madvise(p + (i % 4 << 18), 1 << 18, MADV_DONTNEED) == 0);
    CHECK(ioctl(c->fd, VGPU_IOC_ADD_RING, &ring) == 0);
    CHECK(ioctl(c->fd, VGPU_IOC_KICK) == 0);
    CHECK(ioctl(c->fd, VGPU_IOC_DROP_RING, &ring) == 0);
    CHECK(ioctl(c->fd, VGPU_IOC_UNPIN, &r) == 0);
    CHECK(ioctl(c->fd, VGPU_IOC_UNPIN, &watched.region) == 0);
  }
  munmap(p, 1 << 20);
  return NULL;
}

static void* churn_for_ever(void* argument) {
  for (;;) churn(argument);
  return NULL;
}

/* Killed at any point of any request, with several threads in it. */
static void test_kill_anywhere(void) {
  struct client c = start();
  for (int i = 0; i < 30; i++) {
    pid_t victim = fork();
    if (victim == 0) {
      struct client mine = start();
      pthread_t threads[3];
      for (int t = 0; t < 3; t++) pthread_create(&threads[t], NULL, churn_for_ever, &mine);
      pause();
    }
    usleep(2000 + i * 1700);
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
  }
  wait_for_processes(&c, 1);
  stop(&c);
}

/* Every page that was pinned has been unpinned. */
static void test_nothing_left_pinned(void) {
  long long acquired = -1, released = -2;
  for (int i = 0; i < 50 && acquired != released; i++) {
    FILE* file = fopen("/proc/vmstat", "r");
    char line[128];
    while (fgets(line, sizeof(line), file)) {
      sscanf(line, "nr_foll_pin_acquired %lld", &acquired);
      sscanf(line, "nr_foll_pin_released %lld", &released);
    }
    fclose(file);
    if (acquired != released) usleep(50000);
  }
  CHECK(acquired > 0 && acquired == released);
  printf("pages pinned and unpinned: %lld, %lld\n", acquired, released);
}

static void test_threads(void) {
  struct client c = start();
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, churn, &c);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  CHECK(kick(&c).segments == 0);
  stop(&c);
}

static void test_lost(void) {
  struct client c = start();
  struct vgpu_ioc_region r = region_of(&c, 4096, 0);
  c.ring->reserved0 = kCommandLose;
  CHECK(ioctl(c.fd, VGPU_IOC_KICK) == 0);
  FAILS_WITH(wait_event(&c, 5000), EPIPE);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_KICK), EPIPE);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_PIN, &r), EPIPE);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_PING), EPIPE);
  stop(&c);
}

static void write_file(const char* path, const char* text) {
  int fd = open(path, O_WRONLY);
  CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
}

static void* waiter(void* argument) {
  struct client* c = argument;
  struct vgpu_ioc_wait w = {.seen = c->seen, .timeout_ms = 60000};
  FAILS_WITH(ioctl(c->fd, VGPU_IOC_WAIT, &w), EPIPE);
  return NULL;
}

/* The driver is taken away while a process uses the device, and comes back. */
static void test_unbind(const char* virtio_device) {
  struct client c = start();
  char* p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct vgpu_ioc_region r = region_of(p, 1 << 20, 0);
  pthread_t thread;
  struct vgpu_ioc_watched watched = {.region = r};
  CHECK(ioctl(c.fd, VGPU_IOC_PIN, &r) == 0);
  CHECK(ioctl(c.fd, VGPU_IOC_PIN_WATCHED, &watched) == 0);
  pthread_create(&thread, NULL, waiter, &c);
  usleep(100000);
  write_file("/sys/bus/virtio/drivers/virtio_vgpu/unbind", virtio_device);
  pthread_join(thread, NULL);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_KICK), EPIPE);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_UNPIN, &r), EPIPE);
  CHECK(munmap(p, 1 << 20) == 0); /* still watched */
  write_file("/sys/bus/virtio/drivers/virtio_vgpu/bind", virtio_device);
  struct client again = start();
  CHECK(kick(&again).processes == 1);
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_PING), EPIPE);
  stop(&c);
  CHECK(kick(&again).processes == 1);
  stop(&again);
}

/* The session falls silent: a ping fails within seconds, and after a reset (unbind) all is well again. */
static void test_silence(const char* virtio_device) {
  struct client c = start();
  c.ring->reserved0 = kCommandSilence;
  kick(&c);
  double begin = now();
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_PING), EPIPE);
  CHECK(now() - begin < 6);
  struct vgpu_ioc_ring ring;
  begin = now();
  FAILS_WITH(ioctl(c.fd, VGPU_IOC_ADD_RING, &ring), EPIPE);
  printf("silence noticed after %.1f s\n", now() - begin);
  stop(&c);
  CHECK(open("/dev/vgpu0", O_RDWR) == -1 && errno == EIO);
  write_file("/sys/bus/virtio/drivers/virtio_vgpu/unbind", virtio_device);
  write_file("/sys/bus/virtio/drivers/virtio_vgpu/bind", virtio_device);
  struct client again = start();
  CHECK(kick(&again).processes == 1);
  stop(&again);
}

static int ready_count(void) {
  struct client c = start();
  int count = (int)kick(&c).ready;
  stop(&c);
  return count;
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc == 2 && strcmp(argv[1], "ready") == 0) {
    printf("ready %d\n", ready_count());
    return failures != 0;
  }
  if (argc == 2 && strcmp(argv[1], "die") == 0) {
    struct client c = start();
    c.ring->reserved0 = kCommandDie;
    CHECK(ioctl(c.fd, VGPU_IOC_KICK) == 0);
    FAILS_WITH(ioctl(c.fd, VGPU_IOC_PING), EPIPE);
    printf("session died: %s\n", failures ? "FAIL" : "noticed");
    return failures != 0;
  }
  if (argc == 4 && strcmp(argv[1], "ioctls") == 0) {
    fuzz_ioctls(atof(argv[2]), strtoull(argv[3], NULL, 0));
    return failures != 0;
  }
  if (argc != 2) return 2;
  printf("hello\n"), test_hello();
  printf("rings\n"), test_rings();
  printf("pages\n"), test_pages();
  printf("pin errors\n"), test_pin_errors();
  printf("watch\n"), test_watch();
  printf("wait\n"), test_wait();
  printf("fork\n"), test_fork();
  printf("death\n"), test_death();
  printf("threads\n"), test_threads();
  printf("kill anywhere\n"), test_kill_anywhere();
  printf("lost\n"), test_lost();
  printf("unbind\n"), test_unbind(argv[1]);
  printf("silence\n"), test_silence(argv[1]);
  test_nothing_left_pinned();
  printf("module test: %s\n", failures ? "FAILED" : "passed");
  return failures != 0;
}
