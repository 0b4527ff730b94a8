/* What the guest's checks share: a process on the host and what it can ask for. */
#ifndef TESTS_VM_MODULE_CLIENT_H
#define TESTS_VM_MODULE_CLIENT_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "guest-driver/uapi/vgpu_ioctl.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "tests/vm/module/protocol.h"

extern int failures;

#define CHECK(what)                                                        \
  do {                                                                     \
    errno = 0;                                                             \
    if (!(what)) {                                                         \
      printf("FAIL line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); \
      failures++;                                                          \
    }                                                                      \
  } while (0)
#define FAILS_WITH(call, code) CHECK((call) == -1 && errno == (code))

struct client {
  int fd;
  struct vgpu_ring_header* ring;
  uint64_t seen;
};

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int hello(int fd, int schema_byte, struct vgpu_ioc_hello* hello) {
  memset(hello, 0, sizeof(*hello));
  memset(&hello->schema, schema_byte, sizeof(hello->schema));
  return ioctl(fd, VGPU_IOC_HELLO, hello);
}

static inline void* map_ring(int fd, uint32_t id) {
  return mmap(NULL, VGPU_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)id * VGPU_RING_BYTES);
}

/* A process of its own on the host, with ring 0. */
static inline struct client start(void) {
  struct client c = {.fd = open("/dev/vgpu0", O_RDWR | O_CLOEXEC)};
  struct vgpu_ioc_hello h;
  struct vgpu_ioc_ring ring;
  CHECK(c.fd >= 0);
  CHECK(hello(c.fd, kHostSchemaByte, &h) == 0);
  CHECK(ioctl(c.fd, VGPU_IOC_ADD_RING, &ring) == 0 && ring.id == 0);
  c.ring = map_ring(c.fd, 0);
  CHECK(c.ring != MAP_FAILED);
  return c;
}

static inline void stop(struct client* c) {
  munmap(c->ring, VGPU_RING_BYTES); /* a mapping keeps the file open */
  close(c->fd);
}

static inline int wait_event(struct client* c, uint32_t milliseconds) {
  struct vgpu_ioc_wait w = {.seen = c->seen, .timeout_ms = milliseconds};
  int result = ioctl(c->fd, VGPU_IOC_WAIT, &w);
  c->seen = w.seen;
  return result;
}

static inline struct KickResult kick(struct client* c) {
  struct KickResult* result = (struct KickResult*)((char*)c->ring + VGPU_RING_REPLY_OFFSET);
  c->ring->tail++;
  CHECK(ioctl(c->fd, VGPU_IOC_KICK) == 0);
  while (__atomic_load_n(&c->ring->head, __ATOMIC_ACQUIRE) != c->ring->tail)
    if (wait_event(c, 5000) != 0) {
      printf("FAIL kick: %s\n", strerror(errno));
      failures++;
      break;
    }
  return *result;
}

static inline struct vgpu_ioc_region region_of(void* va, uint64_t bytes, uint32_t flags) {
  struct vgpu_ioc_region r = {.va = (uint64_t)(uintptr_t)va, .bytes = bytes, .flags = flags};
  return r;
}

/* watch.c */
void test_watch(void);

#endif
