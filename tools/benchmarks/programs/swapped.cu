// Goes round blocks of memory, a kernel for each, and says how long that takes.
//
// Arguments: "device" or "managed" memory, how many blocks, MiB of each, how often a kernel goes over its block, MiB of
// the device's memory that are left to this program (0: all of it; the rest is held and not used). Says "ready" when
// all is filled. A line on stdin is a question. "rounds N": so many rounds, {"seconds"}. "turn MS": goes on round for
// so long, {"seconds", "steps"}: blocks. "copies N": both directions at once, N blocks each way, {"in_bytes_per_s",
// "out_bytes_per_s"}. "end": compares all words, says {"wrong"} and ends. Ends with 1 if a call failed.
#include <cstring>

#include "measure.h"

__device__ unsigned first(size_t word, unsigned block) { return static_cast<unsigned>(word) * 2654435761u + block; }

__global__ void fill(unsigned* words, size_t count, unsigned block) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    words[i] = first(i, block);
  }
}

__global__ void add(unsigned* words, size_t count, unsigned times) {
  for (unsigned time = 0; time < times; ++time) {
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
      ++words[i];
    }
  }
}

__global__ void compare(const unsigned* words, size_t count, unsigned block, unsigned added, unsigned* wrong) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    if (words[i] != first(i, block) + added) atomicAdd(wrong, 1u);
  }
}

namespace {

constexpr unsigned kGrid = 1024, kThreads = 256;
constexpr size_t kBeside = size_t{64} << 20;  // what the driver makes later: of the memory that is held

class Blocks {
 public:
  Blocks(bool managed, size_t blocks, size_t mib, unsigned times)
      : count_((mib << 20) / sizeof(unsigned)), times_(times), words_(blocks), steps_(blocks) {
    CHECK(cudaMalloc(&wrong_, sizeof *wrong_));
    for (size_t block = 0; block < blocks; ++block) {
      if (managed) {
        CHECK(cudaMallocManaged(&words_[block], mib << 20));
      } else {
        CHECK(cudaMalloc(&words_[block], mib << 20));
      }
      fill<<<kGrid, kThreads>>>(words_[block], count_, static_cast<unsigned>(block));
      CHECK(cudaDeviceSynchronize());
    }
  }

  size_t size() const { return words_.size(); }
  size_t bytes() const { return count_ * sizeof(unsigned); }

  void step() {
    add<<<kGrid, kThreads>>>(words_[next_], count_, times_);
    ++steps_[next_];
    next_ = (next_ + 1) % words_.size();
  }

  unsigned wrong() {
    CHECK(cudaMemset(wrong_, 0, sizeof *wrong_));
    for (size_t block = 0; block < words_.size(); ++block) {
      compare<<<kGrid, kThreads>>>(words_[block], count_, static_cast<unsigned>(block), steps_[block] * times_, wrong_);
    }
    unsigned found = 0;
    CHECK(cudaMemcpy(&found, wrong_, sizeof found, cudaMemcpyDeviceToHost));
    return found;
  }

 private:
  const size_t count_;
  const unsigned times_;
  std::vector<unsigned*> words_;
  std::vector<unsigned> steps_;
  unsigned* wrong_ = nullptr;
  size_t next_ = 0;
};

// All but so much, and what a context takes beside.
void hold_the_rest(size_t left) {
  size_t free_bytes = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  void* held = nullptr;
  if (free_bytes > left + kBeside) CHECK(cudaMalloc(&held, free_bytes - left - kBeside));
}

void rounds(Blocks& blocks, unsigned long many) {
  const double begin = now_us();
  for (unsigned long round = 0; round < many; ++round) {
    for (size_t block = 0; block < blocks.size(); ++block) blocks.step();
  }
  CHECK(cudaDeviceSynchronize());
  std::printf("{\"seconds\":%.6f}\n", (now_us() - begin) / 1e6);
}

void turn(Blocks& blocks, double us) {
  const double begin = now_us();
  unsigned long steps = 0;
  do {
    blocks.step();
    CHECK(cudaDeviceSynchronize());
    ++steps;
  } while (now_us() - begin < us);
  std::printf("{\"seconds\":%.6f,\"steps\":%lu}\n", (now_us() - begin) / 1e6, steps);
}

// Both directions begin together, from and to pinned memory; a direction's rate is by when it ended.
void copies(size_t bytes, unsigned long many) {
  void *device[2], *host[2];
  cudaStream_t streams[2];
  cudaEvent_t begun, ended[2];
  CHECK(cudaEventCreate(&begun));
  for (int way = 0; way < 2; ++way) {
    CHECK(cudaMalloc(&device[way], bytes));
    CHECK(cudaMallocHost(&host[way], bytes));
    std::memset(host[way], way, bytes);
    CHECK(cudaMemset(device[way], way, bytes));
    CHECK(cudaStreamCreateWithFlags(&streams[way], cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&ended[way]));
  }
  const auto copy = [&](unsigned long times) {
    for (unsigned long time = 0; time < times; ++time) {
      CHECK(cudaMemcpyAsync(device[0], host[0], bytes, cudaMemcpyHostToDevice, streams[0]));
      CHECK(cudaMemcpyAsync(host[1], device[1], bytes, cudaMemcpyDeviceToHost, streams[1]));
    }
  };
  copy(1);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaEventRecord(begun, streams[0]));
  CHECK(cudaStreamWaitEvent(streams[1], begun));
  copy(many);
  double rate[2];
  for (int way = 0; way < 2; ++way) CHECK(cudaEventRecord(ended[way], streams[way]));
  for (int way = 0; way < 2; ++way) {
    float ms = 0;
    CHECK(cudaEventSynchronize(ended[way]));
    CHECK(cudaEventElapsedTime(&ms, begun, ended[way]));
    rate[way] = static_cast<double>(bytes) * static_cast<double>(many) * 1000 / ms;
    CHECK(cudaFree(device[way]));
    CHECK(cudaFreeHost(host[way]));
  }
  std::printf("{\"in_bytes_per_s\":%.0f,\"out_bytes_per_s\":%.0f}\n", rate[0], rate[1]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "which memory, blocks, MiB each, times, MiB left\n"), 2;
  const auto number = [&](int at) { return std::strtoul(argv[at], nullptr, 10); };
  if (number(5) != 0) hold_the_rest(number(5) << 20);
  Blocks blocks(std::strcmp(argv[1], "managed") == 0, number(2), number(3), static_cast<unsigned>(number(4)));
  std::printf("ready\n"), std::fflush(stdout);
  char question[64];
  while (std::fgets(question, sizeof question, stdin) && std::strcmp(question, "end\n") != 0) {
    unsigned long amount = 0;
    if (std::sscanf(question, "rounds %lu", &amount) == 1) {
      rounds(blocks, amount);
    } else if (std::sscanf(question, "turn %lu", &amount) == 1) {
      turn(blocks, static_cast<double>(amount) * 1000);
    } else if (std::sscanf(question, "copies %lu", &amount) == 1) {
      copies(blocks.bytes(), amount);
    } else {
      return std::fprintf(stderr, "what is %s", question), 2;
    }
    std::fflush(stdout);
  }
  std::printf("{\"wrong\":%u}\n", blocks.wrong());
}
