// Works on more device memory than may be resident, and checks each word of it. Arguments: BLOCKS, MiB each, rounds,
// and perhaps "wait": for a line on stdin after "ready" was said, which is when all blocks have their first words; or
// "full": BLOCKS are more than there can be, and it goes on with those it gets, one of which it has freed and got
// again. In each round one kernel for each block adds to its words, on two streams; every fourth round one kernel finds
// all blocks by a table in device memory. Prints "ok", or what is wrong, and ends with 0, 3 (a call failed) or 4.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

__global__ void fill(unsigned* words, size_t count, unsigned block) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    words[i] = i * 7 + block;
}

__global__ void add(unsigned* words, size_t count, unsigned by) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] += by;
}

__global__ void add_to_all(unsigned** table, unsigned blocks, size_t count, unsigned by) {
  for (unsigned block = 0; block < blocks; ++block) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
      table[block][i] += by;
  }
}

__global__ void compare(const unsigned* words, size_t count, unsigned block, unsigned sum, unsigned* wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (words[i] != i * 7 + block + sum) atomicAdd(wrong, 1u);
  }
}

int main(int argc, char** argv) {
  unsigned blocks = argc > 1 ? std::atoi(argv[1]) : 4;
  const unsigned rounds = argc > 3 ? std::atoi(argv[3]) : 4;
  const size_t bytes = size_t(argc > 2 ? std::atoi(argv[2]) : 16) << 20, count = bytes / sizeof(unsigned);
  std::vector<unsigned*> words(blocks);
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const bool full = argc > 4 && std::strcmp(argv[4], "full") == 0;
  for (unsigned block = 0; block < blocks; ++block) {
    const cudaError_t got = cudaMalloc(&words[block], bytes);
    if (full && got == cudaErrorMemoryAllocation && block > 1) {
      blocks = block;
      cudaGetLastError();
      break;
    }
    check(got, "cudaMalloc");
    fill<<<8, 128>>>(words[block], count, block);
  }
  if (full) {
    check(cudaFree(words[blocks / 2]), "cudaFree of a block");
    check(cudaMalloc(&words[blocks / 2], bytes), "cudaMalloc in its place");
    fill<<<8, 128>>>(words[blocks / 2], count, blocks / 2);
    check(cudaFree(words[--blocks]), "cudaFree of the last block");  // for what comes below
  }
  unsigned** table = nullptr;
  unsigned* wrong = nullptr;
  check(cudaMalloc(&table, blocks * sizeof(unsigned*)), "cudaMalloc of the table");
  check(cudaMalloc(&wrong, sizeof(unsigned)), "cudaMalloc of the counter");
  check(cudaMemcpy(table, words.data(), blocks * sizeof(unsigned*), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemset(wrong, 0, sizeof(unsigned)), "cudaMemset");
  check(cudaDeviceSynchronize(), "the first words");
  std::printf("ready\n"), std::fflush(stdout);
  if (argc > 4 && !full) std::getchar();
  unsigned sum = 0;
  for (unsigned round = 1; round <= rounds; ++round, sum += round - 1) {
    if (round % 4 == 0) {
      check(cudaDeviceSynchronize(), "a round");
      add_to_all<<<8, 128>>>(table, blocks, count, round);
      check(cudaDeviceSynchronize(), "a round of all");
      continue;
    }
    for (unsigned block = 0; block < blocks; ++block)
      add<<<8, 128, 0, streams[block % 2]>>>(words[block], count, round);
  }
  check(cudaDeviceSynchronize(), "the rounds");
  for (unsigned block = 0; block < blocks; ++block) compare<<<8, 128>>>(words[block], count, block, sum, wrong);
  unsigned found = 0;
  check(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost), "the comparison");
  if (found) std::printf("%u words are wrong\n", found), std::exit(4);
  std::vector<unsigned> copy(count);
  for (unsigned block = 0; block < blocks; ++block) {
    check(cudaMemcpy(copy.data(), words[block], bytes, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
    for (size_t i = 0; i < count; ++i) {
      if (copy[i] != i * 7 + block + sum) std::printf("block %u word %zu is wrong\n", block, i), std::exit(4);
    }
    check(cudaFree(words[block]), "cudaFree");
  }
  std::printf("ok\n");
}
