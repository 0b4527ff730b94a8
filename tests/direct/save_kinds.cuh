// What programs that are saved share: each counts in something of one kind, which its argument names. They print
// "ready", then a line with its round for each round, until a line comes on stdin: then "ok". A wrong word ends them at
// once.
#pragma once

#include <poll.h>

#include <cstring>
#include <memory>

#include "../cuda/check.h"

inline constexpr unsigned kWords = 5000;

static __global__ void add(unsigned* words, unsigned count, unsigned by) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] += by;
}

inline void add_one(unsigned* words, unsigned count = kWords, cudaStream_t stream = nullptr) {
  add<<<8, 128, 0, stream>>>(words, count, 1);
  CHECK(cudaGetLastError());
}

// All of these words, which the host can read.
inline void expect_all(const unsigned* words, unsigned count, unsigned wanted) {
  for (unsigned i = 0; i < count; ++i) EXPECT_EQ(words[i], wanted);
}

inline void expect_device(const unsigned* words, unsigned count, unsigned wanted) {
  static unsigned copy[kWords];
  CHECK(cudaMemcpy(copy, words, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
  expect_all(copy, count, wanted);
}

class Kind {
 public:
  virtual ~Kind() = default;
  virtual void round(unsigned number) = 0;
};

inline bool told() {
  pollfd entry{0, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

inline int count(const std::unique_ptr<Kind>& kind) {
  if (!kind) return std::printf("no such kind\n"), 2;
  std::printf("ready\n"), std::fflush(stdout);
  for (unsigned round = 1; !told(); ++round) {
    kind->round(round);
    std::printf("%u\n", round), std::fflush(stdout);
  }
  return passed();
}
