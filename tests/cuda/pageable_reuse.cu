// Copies of pageable memory whose addresses get other pages, other rights or other owners between the copies: what is
// copied are always the bytes that the program sees. A driver may keep pages pinned from one copy to the next.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"

constexpr size_t kBytes = 4u << 20;
constexpr size_t kWords = kBytes / 8;
constexpr size_t kPageWords = 4096 / 8;

static uint64_t value(uint64_t seed, size_t i) { return (seed + 1) * 0x9e3779b97f4a7c15ull + i; }

static void fill(uint64_t* at, uint64_t seed, size_t words = kWords) {
  for (size_t i = 0; i < words; ++i) at[i] = value(seed, i);
}

static uint64_t* pages(int protection = PROT_READ | PROT_WRITE, void* at = nullptr, int fd = -1,
                       int kind = MAP_PRIVATE) {
  const int flags = kind | (fd < 0 ? MAP_ANONYMOUS : 0) | (at ? MAP_FIXED : 0);
  void* const memory = mmap(at, kBytes, protection, flags, fd, 0);
  EXPECT(memory != MAP_FAILED);
  return static_cast<uint64_t*>(memory);
}

// A buffer of the device, and pinned memory to look at what is in it.
struct Mirror {
  uint64_t *device = nullptr, *seen = nullptr;
  cudaStream_t stream = nullptr;
  Mirror() {
    CHECK(cudaMalloc(&device, kBytes));
    CHECK(cudaMallocHost(&seen, kBytes));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Mirror() {
    cudaFree(device);
    cudaFreeHost(seen);
    cudaStreamDestroy(stream);
  }
  void put(const uint64_t* from, size_t words = kWords) {
    CHECK(cudaMemcpyAsync(device, from, words * 8, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(seen, device, words * 8, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  // Copies from the program's memory; the device then has what the program sees.
  void put_and_compare(const uint64_t* from, int line, size_t words = kWords) {
    put(from, words);
    if (std::memcmp(seen, from, words * 8) != 0) fail("to the device", from, words, line);
  }
  // Copies to the program's memory.
  void get_and_compare(uint64_t* to, uint64_t seed, int line) {
    fill(seen, seed);
    CHECK(cudaMemcpyAsync(device, seen, kBytes, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(to, device, kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (std::memcmp(seen, to, kBytes) != 0) fail("from the device", to, kWords, line);
  }
  [[noreturn]] void fail(const char* way, const uint64_t* program, size_t words, int line) const {
    size_t at = 0;
    while (at < words && seen[at] == program[at]) ++at;
    std::printf("line %d: a copy %s: word %zu is %llx for the device, %llx for the program\n", line, way, at,
                static_cast<unsigned long long>(seen[at]), static_cast<unsigned long long>(program[at]));
    std::exit(1);
  }
};
#define PUT(mirror, from, ...) (mirror).put_and_compare(from, __LINE__, ##__VA_ARGS__)
#define GET(mirror, to, seed) (mirror).get_and_compare(to, seed, __LINE__)

static void unmapped_and_mapped_again(Mirror& mirror) {
  uint64_t* const memory = pages();
  for (uint64_t seed = 0; seed < 6; ++seed) {
    fill(memory, seed);
    PUT(mirror, memory);
    PUT(mirror, memory);
    if (seed % 2) GET(mirror, memory, 100 + seed);
    if (seed % 3) munmap(memory, kBytes);
    EXPECT(pages(PROT_READ | PROT_WRITE, memory) == memory);
  }
  PUT(mirror, memory);  // untouched
  munmap(memory, kBytes);
}

static void moved(Mirror& mirror) {
  uint64_t *one = pages(), *two = pages();
  fill(one, 10);
  fill(two, 11);
  PUT(mirror, one);
  PUT(mirror, two);
  EXPECT(mremap(two, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, one) == one);  // two's pages at one's address
  EXPECT(one[5] == value(11, 5));
  PUT(mirror, one);
  GET(mirror, one, 12);
  uint64_t* const three = pages();
  EXPECT(mremap(one, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, three) == three);
  fill(pages(PROT_READ | PROT_WRITE, one), 13);
  PUT(mirror, one);
  PUT(mirror, three);
  GET(mirror, one, 14);
  for (size_t i = 0; i < kWords; ++i) EXPECT(three[i] == value(12, i));
  munmap(one, kBytes);
  munmap(three, kBytes);
}

static void discarded(Mirror& mirror) {
  uint64_t* const memory = pages();
  fill(memory, 20);
  PUT(mirror, memory);
  EXPECT(madvise(memory, kBytes, MADV_DONTNEED) == 0);
  PUT(mirror, memory);
  fill(memory, 21);
  PUT(mirror, memory);
  EXPECT(madvise(memory + 100 * kPageWords, 4096, MADV_DONTNEED) == 0);  // one page of it
  PUT(mirror, memory);
  memory[100 * kPageWords + 3] = 22;
  PUT(mirror, memory);
  GET(mirror, memory, 23);
  EXPECT(madvise(memory, kBytes, MADV_FREE) == 0);
  fill(memory, 24);
  PUT(mirror, memory);
  munmap(memory, kBytes);
}

// Both sides of a fork write, in either order; each sees only its own.
static void forked(Mirror& mirror) {
  uint64_t* const memory = pages();
  fill(memory, 30);
  PUT(mirror, memory);
  for (uint64_t round = 0; round < 3; ++round) {
    int go[2], done[2];
    EXPECT(pipe(go) == 0 && pipe(done) == 0);
    char byte = 0;
    const pid_t child = fork();
    if (child == 0) {
      fill(memory, 40 + round);
      if (write(done[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) _exit(1);
      for (size_t i = 0; i < kWords; ++i)
        if (memory[i] != value(40 + round, i)) _exit(2);
      _exit(0);
    }
    if (round == 1) fill(memory, 50);
    EXPECT(read(done[0], &byte, 1) == 1);
    PUT(mirror, memory);
    fill(memory, 60 + round);
    PUT(mirror, memory);
    GET(mirror, memory, 70 + round);
    EXPECT(write(go[1], &byte, 1) == 1);
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT_EQ(status, 0);
    memory[7] = round;
    PUT(mirror, memory);
    for (const int fd : {go[0], go[1], done[0], done[1]}) close(fd);
  }
  munmap(memory, kBytes);
}

static void protected_and_not(Mirror& mirror) {
  uint64_t* const memory = pages();
  fill(memory, 80);
  PUT(mirror, memory);
  EXPECT(mprotect(memory, kBytes, PROT_READ) == 0);
  PUT(mirror, memory);
  EXPECT(mprotect(memory, kBytes, PROT_READ | PROT_WRITE) == 0);
  fill(memory, 81);
  PUT(mirror, memory);
  GET(mirror, memory, 82);
  munmap(memory, kBytes);
  uint64_t* const zeros = pages(PROT_READ);  // pages that are not there yet
  PUT(mirror, zeros);
  EXPECT(mprotect(zeros, kBytes, PROT_READ | PROT_WRITE) == 0);
  PUT(mirror, zeros);
  fill(zeros, 83);
  PUT(mirror, zeros);
  munmap(zeros, kBytes);
}

static void of_a_file(Mirror& mirror) {
  const int file = memfd_create("reuse", MFD_CLOEXEC);
  EXPECT(file >= 0 && ftruncate(file, kBytes) == 0);
  uint64_t* const shared = pages(PROT_READ | PROT_WRITE, nullptr, file, MAP_SHARED);
  uint64_t* const own = pages(PROT_READ | PROT_WRITE, nullptr, file, MAP_PRIVATE);
  fill(shared, 90);
  PUT(mirror, shared);
  PUT(mirror, own);
  own[9 * kPageWords] = 91;  // a page of its own from now on
  PUT(mirror, own);
  fill(own, 92);
  PUT(mirror, own);
  GET(mirror, own, 93);
  PUT(mirror, own);
  PUT(mirror, shared);
  GET(mirror, shared, 94);
  PUT(mirror, shared);
  EXPECT(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes) == 0);
  PUT(mirror, shared);
  fill(shared, 95);
  PUT(mirror, shared);
  EXPECT(ftruncate(file, 0) == 0 && ftruncate(file, kBytes) == 0);
  fill(shared, 96);
  PUT(mirror, shared);
  munmap(shared, kBytes);
  munmap(own, kBytes);
  close(file);
}

static void of_the_heap(Mirror& mirror) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    auto* memory = static_cast<uint64_t*>(std::malloc(kBytes));
    fill(memory, seed);
    PUT(mirror, memory);
    memory = static_cast<uint64_t*>(std::realloc(memory, 3 * kBytes));
    fill(memory + kWords, seed + 50, 2 * kWords);
    PUT(mirror, memory);
    PUT(mirror, memory + kWords + 5);
    std::free(memory);
  }
}

static void registered(Mirror& mirror) {
  uint64_t* const memory = pages();
  fill(memory, 110);
  PUT(mirror, memory);
  CHECK(cudaHostRegister(memory, kBytes, cudaHostRegisterMapped));
  fill(memory, 111);
  PUT(mirror, memory);
  EXPECT_CODE(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, kBytes, 0));
  CHECK(cudaHostUnregister(memory));
  fill(memory, 112);
  PUT(mirror, memory);
  CHECK(cudaHostRegister(memory + kWords / 4, kBytes / 2, 0));  // the middle
  PUT(mirror, memory + kWords / 2, kWords / 4);
  CHECK(cudaHostUnregister(memory + kWords / 4));
  EXPECT_CODE(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory));
  cudaGetLastError();
  GET(mirror, memory, 113);
  munmap(memory, kBytes);
}

// More buffers than any table holds, and pieces that share pages.
static void many(Mirror& mirror) {
  constexpr size_t kCount = 280, kPiece = (1u << 20) / 8 + 24;
  auto* const memory = static_cast<uint64_t*>(std::malloc(kCount * kPiece * 8));
  for (uint64_t round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kCount; ++i) fill(memory + i * kPiece, 1000 * round + i, kPiece);
    for (size_t i = 0; i < kCount; ++i) PUT(mirror, memory + i * kPiece, kPiece);
  }
  PUT(mirror, memory + kPiece / 2);
  std::free(memory);
}

// Threads, each with a buffer that it replaces again and again while the others copy, and one that only copies.
static void threads() {
  std::atomic<bool> stop{false};
  std::thread steady([&] {
    Mirror mirror;
    uint64_t* const memory = pages();
    for (uint64_t seed = 0; !stop; ++seed) {
      fill(memory, seed);
      PUT(mirror, memory);
    }
    munmap(memory, kBytes);
  });
  std::vector<std::thread> changing;
  for (uint64_t thread = 0; thread < 3; ++thread) {
    changing.emplace_back([thread] {
      Mirror mirror;
      uint64_t* const memory = pages();
      for (uint64_t seed = 0; seed < 20; ++seed) {
        fill(memory, 1000 * thread + seed);
        PUT(mirror, memory);
        if (seed % 4 == 0) pages(PROT_READ | PROT_WRITE, memory);
        if (seed % 4 == 1) madvise(memory, kBytes / 2, MADV_DONTNEED);
        PUT(mirror, memory);
      }
      munmap(memory, kBytes);
    });
  }
  for (std::thread& one : changing) one.join();
  stop = true;
  steady.join();
}

int main() {
  {
    Mirror mirror;
    unmapped_and_mapped_again(mirror);
    moved(mirror);
    discarded(mirror);
    forked(mirror);
    protected_and_not(mirror);
    of_a_file(mirror);
    of_the_heap(mirror);
    registered(mirror);
    many(mirror);
  }
  threads();
  return passed();
}
