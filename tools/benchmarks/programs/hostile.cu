// What a tenant may try, over and over until it is terminated; errors are what it wants. Argument: the deed. Prints a
// line once it has begun, and how often it has done it when it is terminated: of what it hoards, each one counts.
//
// nvcc: -lcuda
#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>

#include "measure.h"

static volatile sig_atomic_t deeds = 0;

static void done() { deeds = deeds + 1; }

static void say_and_end(int) {
  char line[32];
  const int length = std::snprintf(line, sizeof line, "%d\n", static_cast<int>(deeds));
  _exit(write(STDOUT_FILENO, line, static_cast<size_t>(length)) == length ? 0 : 1);
}

// Text that no cache has: its constants are new each time.
static std::string kernels(int number, int count) {
  std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n";
  for (int k = 0; k < count; ++k) {
    text += ".visible .entry k" + std::to_string(k) + "(.param .u64 p) {\n.reg .b64 %a; .reg .f32 %f; .reg .u32 %t;\n" +
            "ld.param.u64 %a, [p];\nmov.u32 %t, %tid.x;\ncvt.rn.f32.u32 %f, %t;\n";
    for (int i = 0; i < 200; ++i) {
      text += "fma.rn.f32 %f, %f, %f, " + std::to_string(number % 1000 + i + k) + ".5;\n";
    }
    text += "st.global.f32 [%a], %f;\nret;\n}\n";
  }
  return text;
}

static void load(const std::string& text) {
  CUmodule module = nullptr;
  if (cuModuleLoadData(&module, text.c_str()) == CUDA_SUCCESS) cuModuleUnload(module);
  done();
}

// As many as it gets, and back.
template <typename Thing>
static void hoard(const std::function<bool(Thing*)>& take, const std::function<void(Thing)>& give, size_t most) {
  std::vector<Thing> all;
  for (Thing one; all.size() < most && take(&one); done()) all.push_back(one);
  for (Thing one : all) give(one);
}

__global__ void stray(int* at) { *at = 1; }
__global__ void endless(volatile int* at) {
  while (*at == 0) continue;
}

// A process of its own does it: what it did to its context ends with it.
static void apart(const std::function<void()>& deed) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGTERM, SIG_DFL);
    deed();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  done();
}

static void first_call() { cudaFree(nullptr); }

int main(int argc, char** argv) {
  const std::string deed = argc > 1 ? argv[1] : "";
  // What forks makes no context before.
  const bool forks = deed == "processes" || deed == "faults";
  if (!forks && cudaFree(nullptr) != cudaSuccess) return 2;
  int number = static_cast<int>(getpid()) * 7919;
  const std::map<std::string, std::function<void()>> deeds = {
      {"broken images", [] { load("no image at all"); }},
      {"large variables",
       [] { load(".version 8.0\n.target sm_75\n.address_size 64\n.global .b8 a[1073741824] = {1};\n"); }},
      {"code", [&number] { load(kernels(number++, 20)); }},
      {"streams",
       [] {
         hoard<cudaStream_t>([](auto* s) { return cudaStreamCreate(s) == cudaSuccess; },
                             [](auto s) { cudaStreamDestroy(s); }, 100000);
       }},
      {"contexts",
       [] {
         hoard<CUcontext>([](auto* c) { return cuCtxCreate(c, nullptr, 0, 0) == CUDA_SUCCESS; },
                          [](auto c) { cuCtxDestroy(c); }, 1000);
       }},
      {"pinned memory",
       [] {
         hoard<void*>([](auto* p) { return cudaHostAlloc(p, 64 << 20, cudaHostAllocDefault) == cudaSuccess; },
                      [](auto p) { cudaFreeHost(p); }, 1000);
       }},
      {"device memory",
       [] {
         hoard<void*>([](auto* p) { return cudaMalloc(p, 1 << 20) == cudaSuccess; }, [](auto p) { cudaFree(p); },
                      100000);
       }},
      {"processes", [] { apart(first_call); }},
      {"faults",
       [] {
         apart([] {
           stray<<<1, 1>>>(reinterpret_cast<int*>(uint64_t{1} << 50));
           cudaDeviceSynchronize();
         });
       }},
      {"endless kernel",
       [] {
         int* word = nullptr;
         if (cudaMalloc(&word, 4) != cudaSuccess || cudaMemset(word, 0, 4) != cudaSuccess) return;
         endless<<<1, 1>>>(word);
         cudaDeviceSynchronize();
       }},
  };
  const auto found = deeds.find(deed);
  if (found == deeds.end()) {
    for (const auto& [name, what] : deeds) std::printf("%s\n", name.c_str());
    return 2;
  }
  signal(SIGTERM, say_and_end);
  std::printf("begun\n");
  std::fflush(stdout);
  for (;;) found->second();
}
