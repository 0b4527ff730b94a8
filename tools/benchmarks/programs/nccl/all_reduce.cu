// nvcc: -O2
// NCCL's all-reduce, checked and timed: a line of JSON for each size. NCCL is the library that NCCL_LIBRARY names.
//
//   all_reduce threads RANKS ROUNDS BYTES...             devices 0 to RANKS - 1, a thread for each
//   all_reduce process RANKS ROUNDS BYTES...             one rank: NCCL_RANK, which uses device NCCL_DEVICE; rank 0
//                                                        puts what the others need into the file NCCL_ID_FILE
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

// Of nccl.h, which need not be there.
struct UniqueId {
  char internal[128];
};
using Comm = struct NcclComm*;
constexpr int kFloat = 7, kSum = 0;

struct Nccl {
  int (*version)(int*);
  int (*unique_id)(UniqueId*);
  int (*init_rank)(Comm*, int, UniqueId, int);
  int (*init_all)(Comm*, int, const int*);
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, cudaStream_t);
  int (*destroy)(Comm);
  const char* (*last_error)(Comm);
  const char* (*error_string)(int);
} nccl;

[[noreturn]] void fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::exit(1);
}

#define CUDA(call)                                                                          \
  do {                                                                                      \
    if (const cudaError_t e = (call); e != cudaSuccess) fail(#call, cudaGetErrorString(e)); \
  } while (0)
#define NCCL(call)                                                                                              \
  do {                                                                                                          \
    if (const int e = (call)) fail(#call, std::string(nccl.error_string(e)) + "; " + nccl.last_error(nullptr)); \
  } while (0)

void load() {
  const char* const path = std::getenv("NCCL_LIBRARY");
  void* const library = dlopen(path ? path : "libnccl.so.2", RTLD_NOW);
  if (!library) fail("NCCL_LIBRARY", dlerror());
  const auto find = [library](const char* name, auto* function) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
    if (!*function) fail(name, "this NCCL has no such function");
  };
  find("ncclGetVersion", &nccl.version);
  find("ncclGetUniqueId", &nccl.unique_id);
  find("ncclCommInitRank", &nccl.init_rank);
  find("ncclCommInitAll", &nccl.init_all);
  find("ncclAllReduce", &nccl.all_reduce);
  find("ncclCommDestroy", &nccl.destroy);
  find("ncclGetLastError", &nccl.last_error);
  find("ncclGetErrorString", &nccl.error_string);
}

// Small integers, so that sums are exact in any order.
float value_of(int rank, size_t i) { return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 101); }

struct Measured {
  double seconds = 0;  // of one all-reduce
  size_t wrong = 0;
};

// One rank's part: some that warm up, of which one is checked, and those that are timed.
Measured run_rank(Comm comm, int device, int rank, int ranks, size_t bytes, int rounds) {
  const size_t count = bytes / sizeof(float);
  CUDA(cudaSetDevice(device));
  cudaStream_t stream;
  float *from = nullptr, *to = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&from, bytes));
  CUDA(cudaMalloc(&to, bytes));
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = value_of(rank, i);
  CUDA(cudaMemcpyAsync(from, data.data(), bytes, cudaMemcpyHostToDevice, stream));
  Measured measured;
  for (int round = 0; round < 3; ++round) {
    NCCL(nccl.all_reduce(from, to, count, kFloat, kSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
  }
  CUDA(cudaMemcpyAsync(data.data(), to, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int other = 0; other < ranks; ++other) sum += value_of(other, i);
    measured.wrong += data[i] != sum;
  }
  // Ranks check at different speeds: one more brings them together, or the first that is timed would wait for that.
  NCCL(nccl.all_reduce(from, to, count, kFloat, kSum, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    NCCL(nccl.all_reduce(from, to, count, kFloat, kSum, comm, stream));
  }
  CUDA(cudaStreamSynchronize(stream));
  measured.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / rounds;
  CUDA(cudaFree(from));
  CUDA(cudaFree(to));
  CUDA(cudaStreamDestroy(stream));
  return measured;
}

bool say(int ranks, size_t bytes, const Measured& measured) {
  const double bandwidth = static_cast<double>(bytes) / measured.seconds * 1e-9;
  std::printf("{\"ranks\": %d, \"bytes\": %zu, \"us\": %.1f, \"algbw\": %.4g, \"busbw\": %.4g, \"wrong\": %zu}\n",
              ranks, bytes, measured.seconds * 1e6, bandwidth, bandwidth * 2 * (ranks - 1) / ranks, measured.wrong);
  std::fflush(stdout);
  return measured.wrong == 0;
}

bool threads(int ranks, int rounds, const std::vector<size_t>& sizes) {
  std::vector<Comm> comms(ranks);
  std::vector<int> devices(ranks);
  for (int i = 0; i < ranks; ++i) devices[i] = i;
  NCCL(nccl.init_all(comms.data(), ranks, devices.data()));
  bool right = true;
  for (const size_t bytes : sizes) {
    std::vector<Measured> measured(ranks);
    std::vector<std::thread> all;
    for (int i = 0; i < ranks; ++i) {
      all.emplace_back([&, i] { measured[i] = run_rank(comms[i], i, i, ranks, bytes, rounds); });
    }
    for (std::thread& one : all) one.join();
    Measured worst;
    for (const Measured& one : measured) {
      worst.seconds = std::max(worst.seconds, one.seconds);
      worst.wrong += one.wrong;
    }
    right = say(ranks, bytes, worst) && right;
  }
  for (const Comm comm : comms) NCCL(nccl.destroy(comm));
  return right;
}

int number(const char* name) {
  const char* const text = std::getenv(name);
  if (!text) fail(name, "it is not set");
  return std::atoi(text);
}

UniqueId shared_id(int rank) {
  const char* const path = std::getenv("NCCL_ID_FILE");
  if (!path) fail("NCCL_ID_FILE", "it is not set");
  UniqueId id{};
  if (rank == 0) {
    NCCL(nccl.unique_id(&id));
    const std::string made = std::string(path) + ".new";
    FILE* const file = std::fopen(made.c_str(), "wb");
    if (!file || std::fwrite(&id, sizeof(id), 1, file) != 1 || std::fclose(file) != 0) fail(path, "cannot be written");
    if (std::rename(made.c_str(), path) != 0) fail(path, "cannot be made");
    return id;
  }
  for (int tries = 0; tries < 600; ++tries) {
    if (FILE* const file = std::fopen(path, "rb")) {
      const bool whole = std::fread(&id, sizeof(id), 1, file) == 1;
      std::fclose(file);
      if (whole) return id;
    }
    ::usleep(100'000);
  }
  fail(path, "rank 0 has not made it in a minute");
}

bool process(int ranks, int rounds, const std::vector<size_t>& sizes) {
  const int rank = number("NCCL_RANK"), device = number("NCCL_DEVICE");
  CUDA(cudaSetDevice(device));
  Comm comm = nullptr;
  NCCL(nccl.init_rank(&comm, ranks, shared_id(rank), rank));
  bool right = true;
  for (const size_t bytes : sizes) {
    const Measured measured = run_rank(comm, device, rank, ranks, bytes, rounds);
    if (rank == 0) say(ranks, bytes, measured);
    right = measured.wrong == 0 && right;
  }
  NCCL(nccl.destroy(comm));
  return right;
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) fail("usage", "all_reduce threads|process RANKS ROUNDS BYTES...");
  load();
  std::vector<size_t> sizes;
  for (int i = 4; i < count; ++i) sizes.push_back(std::strtoull(words[i], nullptr, 10));
  const int ranks = std::atoi(words[2]), rounds = std::atoi(words[3]);
  const bool right = !std::strcmp(words[1], "threads") ? threads(ranks, rounds, sizes) : process(ranks, rounds, sizes);
  return right ? 0 : 1;
}
