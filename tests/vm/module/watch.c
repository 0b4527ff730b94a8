/* Watched pins: what changes the word, and what does not. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/vm/module/client.h"

enum { kPages = 64 };
#define kBytes (kPages * 4096ul)

struct watching {
  struct client client;
  const uint32_t* words;
  char* memory; /* kBytes, the middle of three times that */
};

static struct watching begin(int protection) {
  struct watching w = {.client = start()};
  w.words = mmap(NULL, VGPU_WATCH_BYTES, PROT_READ, MAP_SHARED, w.client.fd, VGPU_WATCH_OFFSET);
  CHECK(w.words != MAP_FAILED);
  char* whole = mmap(NULL, 3 * kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(whole != MAP_FAILED);
  w.memory = whole + kBytes;
  return w;
}

static void end(struct watching* w) {
  munmap(w->memory - kBytes, 3 * kBytes);
  munmap((void*)w->words, VGPU_WATCH_BYTES);
  stop(&w->client);
}

static struct vgpu_ioc_watched pin(struct watching* w, uint32_t flags) {
  struct vgpu_ioc_watched watched = {.region = region_of(w->memory, kBytes, flags)};
  CHECK(ioctl(w->client.fd, VGPU_IOC_PIN_WATCHED, &watched) == 0);
  return watched;
}

static int good(struct watching* w, const struct vgpu_ioc_watched* watched) {
  return __atomic_load_n(&w->words[watched->slot], __ATOMIC_ACQUIRE) == watched->region.id;
}

static void unpin(struct watching* w, struct vgpu_ioc_watched* watched) {
  CHECK(ioctl(w->client.fd, VGPU_IOC_UNPIN, &watched->region) == 0);
  CHECK(!good(w, watched));
}

static void unmap_page(char* at) { CHECK(munmap(at, 4096) == 0); }
static void map_page(char* at) {
  CHECK(mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
}
static void move_page(char* at) {
  char* moved = mremap(at, 4096, 4096, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
  CHECK(moved != MAP_FAILED && munmap(moved, 4096) == 0);
}
static void protect_page(char* at) {
  CHECK(mprotect(at, 4096, PROT_READ) == 0 && mprotect(at, 4096, PROT_READ | PROT_WRITE) == 0);
}
static void discard_page(char* at) { CHECK(madvise(at, 4096, MADV_DONTNEED) == 0); }
static void fork_over_page(char* at) {
  (void)at;
  pid_t child = fork();
  if (child == 0) _exit(0);
  CHECK(waitpid(child, NULL, 0) == child);
}
static void write_page(char* at) { at[5] = 5; }

static void changes_are_told(void) {
  void (*const changes[])(char*) = {map_page, move_page, protect_page, discard_page, fork_over_page};
  struct watching w = begin(PROT_READ | PROT_WRITE);
  for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
    const int pages[] = {0, kPages / 2, kPages - 1};
    for (unsigned page = 0; page < 3; page++) {
      struct vgpu_ioc_watched watched = pin(&w, 0);
      CHECK(good(&w, &watched));
      changes[i](w.memory + pages[page] * 4096);
      if (good(&w, &watched)) printf("FAIL change %u of page %d is not told\n", i, pages[page]), failures++;
      unpin(&w, &watched);
    }
  }
  struct vgpu_ioc_watched watched = pin(&w, 0);
  unmap_page(w.memory + 4096);
  CHECK(!good(&w, &watched));
  unpin(&w, &watched);
  end(&w);
}

/* Neither the program's own writes nor what happens beside the range. */
static void nothing_else_is_told(void) {
  void (*const changes[])(char*) = {map_page, move_page, protect_page, discard_page, write_page, unmap_page};
  struct watching w = begin(PROT_READ | PROT_WRITE);
  struct vgpu_ioc_watched watched = pin(&w, 0);
  for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
    changes[i](w.memory - 4096);
    changes[i](w.memory + kBytes);
  }
  for (int page = 0; page < kPages; page++) write_page(w.memory + page * 4096);
  CHECK(good(&w, &watched));
  CHECK(kick(&w.client).segments > 0);
  unpin(&w, &watched);
  end(&w);
}

/* READ_ONLY asks for less; anonymous memory is pinned for writing where it may be written. */
static void writable_where_it_is_free(void) {
  struct watching w = begin(PROT_READ | PROT_WRITE);
  w.memory[0] = 1; /* the rest is not there yet */
  struct vgpu_ioc_watched watched = pin(&w, VGPU_REGION_READ_ONLY);
  CHECK(good(&w, &watched) && watched.region.flags == 0);
  unpin(&w, &watched);
  CHECK(mprotect(w.memory, kBytes, PROT_READ) == 0);
  watched = pin(&w, VGPU_REGION_READ_ONLY);
  CHECK(good(&w, &watched) && watched.region.flags == VGPU_REGION_READ_ONLY);
  watched.region.flags = 0;
  struct vgpu_ioc_watched refused = watched;
  FAILS_WITH(ioctl(w.client.fd, VGPU_IOC_PIN_WATCHED, &refused), EFAULT);
  CHECK(good(&w, &watched));
  unpin(&w, &watched);
  end(&w);
}

/* Memory of a file is pinned for reading only; a page that the program makes its own is another one. */
static void copy_on_write_is_told(void) {
  struct watching w = begin(PROT_READ | PROT_WRITE);
  int fd = memfd_create("watch", MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, kBytes) == 0);
  CHECK(mmap(w.memory, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == w.memory);
  struct vgpu_ioc_watched watched = pin(&w, VGPU_REGION_READ_ONLY);
  CHECK(good(&w, &watched) && watched.region.flags == VGPU_REGION_READ_ONLY);
  const int was_private = *(volatile char*)w.memory; /* a kernel may have made it so when it was pinned */
  w.memory[4096 * 3] = 1;
  struct vgpu_ioc_watched again = pin(&w, VGPU_REGION_READ_ONLY);
  CHECK(was_private == 0 && good(&w, &again));
  unpin(&w, &again);
  unpin(&w, &watched);
  close(fd);
  end(&w);
}

static void pages_and_slots_are_bounded(void) {
  struct watching w = begin(PROT_READ | PROT_WRITE);
  FAILS_WITH((long)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, w.client.fd, VGPU_WATCH_OFFSET), EINVAL);
  FAILS_WITH((long)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, w.client.fd, VGPU_WATCH_OFFSET), EINVAL);
  FAILS_WITH((long)mmap(NULL, 8192, PROT_READ, MAP_SHARED, w.client.fd, VGPU_WATCH_OFFSET), EINVAL);
  FAILS_WITH(mprotect((void*)w.words, VGPU_WATCH_BYTES, PROT_READ | PROT_WRITE), EACCES);
  struct vgpu_ioc_watched* all = calloc(VGPU_WATCH_SLOTS + 1, sizeof(*all));
  for (unsigned i = 0; i <= VGPU_WATCH_SLOTS; i++) {
    all[i].region = region_of(w.memory, 4096, 0);
    if (i < VGPU_WATCH_SLOTS) CHECK(ioctl(w.client.fd, VGPU_IOC_PIN_WATCHED, &all[i]) == 0);
  }
  FAILS_WITH(ioctl(w.client.fd, VGPU_IOC_PIN_WATCHED, &all[VGPU_WATCH_SLOTS]), ENOSPC);
  discard_page(w.memory);
  for (unsigned i = 0; i < VGPU_WATCH_SLOTS; i++) failures += good(&w, &all[i]);
  for (unsigned i = 0; i < VGPU_WATCH_SLOTS / 2; i++) unpin(&w, &all[i]); /* the rest goes with the process */
  free(all);
  end(&w);
}

static void freed_memory_is_unpinned(void) {
  struct watching w = begin(PROT_READ | PROT_WRITE);
  struct vgpu_ioc_watched watched = pin(&w, 0);
  CHECK(munmap(w.memory, kBytes) == 0 && !good(&w, &watched));
  for (int i = 0; i < 100 && kick(&w.client).segments; i++) usleep(10000);
  CHECK(kick(&w.client).segments == 0);
  FAILS_WITH(ioctl(w.client.fd, VGPU_IOC_UNPIN, &watched.region), ENOENT);
  end(&w);
}

void test_watch(void) {
  changes_are_told();
  nothing_else_is_told();
  writable_where_it_is_free();
  copy_on_write_is_told();
  pages_and_slots_are_bounded();
  freed_memory_is_unpinned();
}
