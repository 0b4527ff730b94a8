// Reaches memory that has left the device in every way that there is. Arguments: BLOCKS, MiB each; together they are
// more than may be resident. Before each way all blocks are gone over by a kernel whose only memory is what its
// parameter points into, so that most of them have left when the way begins. Prints the way that went wrong and ends
// with 3 (a call failed) or 4 (words are wrong), or "ok".
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

static const char* way = "at first";

static void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", way, cudaGetErrorName(error));
  std::exit(3);
}

struct Described {
  unsigned by;
  unsigned* words;
  size_t count;
};

__device__ unsigned** table_variable;

__device__ size_t first() { return blockIdx.x * size_t{blockDim.x} + threadIdx.x; }
__device__ size_t step() { return gridDim.x * size_t{blockDim.x}; }

__global__ void add(unsigned* words, size_t count, unsigned by) {
  for (size_t i = first(); i < count; i += step()) words[i] += by;
}
__global__ void add_described(Described one) {
  for (size_t i = first(); i < one.count; i += step()) one.words[i] += one.by;
}
__global__ void add_one_of(unsigned* a, unsigned* b, bool second, size_t count) {
  unsigned* const words = second ? b : a;
  for (size_t i = first(); i < count; i += step()) words[i] += 1;
}
__global__ void add_from_end(unsigned* end, size_t count) {
  for (size_t i = first(); i < count; i += step()) *(end - 1 - i) += 1;
}
__global__ void add_from_one(unsigned* before, size_t count) {
  for (size_t i = first() + 1; i <= count; i += step()) before[i] += 1;
}
__global__ void add_by_table(unsigned** table, unsigned block, size_t count) {
  for (size_t i = first(); i < count; i += step()) table[block][i] += 1;
}
__global__ void add_by_variable(unsigned block, size_t count) {
  for (size_t i = first(); i < count; i += step()) table_variable[block][i] += 1;
}
__global__ void add_atomically(unsigned* words, size_t count, unsigned* unused) {
  if (unused) ++*unused;
  for (size_t i = first(); i < count; i += step()) atomicAdd(&words[i], 1u);
}
__global__ void add_halves(unsigned high, unsigned low, size_t count) {
  auto* words = reinterpret_cast<unsigned*>(static_cast<unsigned long long>(high) << 32 | low);
  for (size_t i = first(); i < count; i += step()) words[i] += 1;
}
__global__ void add_texels(cudaTextureObject_t texture, size_t count, unsigned* sum) {
  for (size_t i = first(); i < count; i += step()) atomicAdd(sum, tex1Dfetch<unsigned>(texture, static_cast<int>(i)));
}

int main(int argc, char** argv) {
  const unsigned blocks = argc > 1 ? std::atoi(argv[1]) : 4;
  const size_t bytes = size_t(argc > 2 ? std::atoi(argv[2]) : 4) << 20, count = bytes / sizeof(unsigned);
  std::vector<unsigned*> words(blocks);
  std::vector<unsigned> host(count);
  unsigned sum = 0;  // of each word
  unsigned **table = nullptr, *total = nullptr;
  check(cudaMalloc(&table, blocks * sizeof(unsigned*)));
  check(cudaMalloc(&total, sizeof(unsigned)));
  for (unsigned*& one : words) {
    check(cudaMalloc(&one, bytes));
    check(cudaMemset(one, 0, bytes));
  }
  check(cudaMemcpy(table, words.data(), blocks * sizeof(unsigned*), cudaMemcpyHostToDevice));
  check(cudaMemcpyToSymbol(table_variable, &table, sizeof table));
  const auto go_over_all = [&](unsigned times) {
    for (unsigned time = 0; time < times; ++time, ++sum) {
      for (unsigned* one : words) add<<<8, 128>>>(one, count, 1);
      check(cudaDeviceSynchronize());
    }
  };
  // Each way adds 1 to every word of every block.
  const auto by = [&](const char* name, const std::function<void(unsigned)>& reach) {
    way = name;
    go_over_all(2);
    for (unsigned block = 0; block < blocks; ++block) reach(block);
    ++sum;
    check(cudaDeviceSynchronize());
    for (unsigned block = 0; block < blocks; ++block) {
      check(cudaMemcpy(host.data(), words[block], bytes, cudaMemcpyDeviceToHost));
      for (size_t i = 0; i < count; ++i) {
        if (host[i] != sum)
          std::printf("%s: block %u word %zu is %u, not %u\n", way, block, i, host[i], sum), std::exit(4);
      }
    }
  };
  by("a structure", [&](unsigned block) { add_described<<<8, 128>>>({1, words[block], count}); });
  by("one of two", [&](unsigned block) { add_one_of<<<8, 128>>>(words[0], words[block], true, count); });
  by("its end", [&](unsigned block) { add_from_end<<<8, 128>>>(words[block] + count, count); });
  by("before it", [&](unsigned block) { add_from_one<<<8, 128>>>(words[block] - 1, count); });
  by("atomics", [&](unsigned block) { add_atomically<<<8, 128>>>(words[block], count, nullptr); });
  by("halves", [&](unsigned block) {
    const auto at = reinterpret_cast<unsigned long long>(words[block]);
    add_halves<<<8, 128>>>(static_cast<unsigned>(at >> 32), static_cast<unsigned>(at), count);
  });
  by("a table", [&](unsigned block) { add_by_table<<<8, 128>>>(table, block, count); });
  by("a variable", [&](unsigned block) { add_by_variable<<<8, 128>>>(block, count); });
  by("copies", [&](unsigned block) {
    check(cudaMemcpy(host.data(), words[block], bytes, cudaMemcpyDeviceToHost));
    for (unsigned& word : host) ++word;
    check(cudaMemcpy2D(words[block], 4096, host.data(), 4096, 4096, bytes / 4096, cudaMemcpyHostToDevice));
  });
  by("copies on the device", [&](unsigned block) {
    const unsigned other = block < blocks / 2 ? block + blocks / 2 : block - blocks / 2;
    // A block and the other have the same words but for those that were added already.
    check(cudaMemcpyAsync(words[block], words[other], bytes, cudaMemcpyDeviceToDevice));
    if (block < blocks / 2) add<<<8, 128>>>(words[block], count, 1);
  });
  by("fills", [&](unsigned block) {
    check(cudaMemset2DAsync(words[block], 4096, 0, 4096, bytes / 4096));
    add<<<8, 128>>>(words[block], count, sum + 1);
  });
  way = "a texture";
  go_over_all(2);
  check(cudaMemset(total, 0, sizeof(unsigned)));
  for (unsigned* one : words) {
    cudaResourceDesc from{};
    from.resType = cudaResourceTypeLinear;
    from.res.linear.devPtr = one;
    from.res.linear.desc = cudaCreateChannelDesc<unsigned>();
    from.res.linear.sizeInBytes = 4096;
    cudaTextureDesc how{};
    cudaTextureObject_t texture = 0;
    check(cudaCreateTextureObject(&texture, &from, &how, nullptr));
    add_texels<<<1, 32>>>(texture, 1024, total);
    check(cudaDestroyTextureObject(texture));
  }
  unsigned found = 0;
  check(cudaMemcpy(&found, total, sizeof found, cudaMemcpyDeviceToHost));
  if (found != 1024 * blocks * sum) std::printf("%s: %u, not %u\n", way, found, 1024 * blocks * sum), std::exit(4);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamCreate(&stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (unsigned* one : words) add<<<8, 128, 0, stream>>>(one, count, 1);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  by("a graph", [&](unsigned block) {
    if (block == 0) check(cudaGraphLaunch(exec, stream));
  });
  for (unsigned* one : words) check(cudaFree(one));
  std::printf("ok\n");
}
