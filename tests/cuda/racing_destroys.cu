// nvcc: -lcuda
// device: soft
// Threads that destroy and free what others use and destroy too: each call does its work or says that there is no such
// thing. (NVIDIA's driver may crash of it, on bare metal and in a runner; here it is about everything before it.)
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "bad_input.cuh"

static const char* kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
)";

constexpr int kThreads = 6, kSlots = 8, kSteps = 1500;

// What threads take out of each other's hands; a handle that is gone may still be found here by some.
template <typename T>
struct Slots {
  std::atomic<T> slots[kSlots]{};
};
static Slots<CUstream> streams;
static Slots<CUevent> events;
static Slots<CUmodule> modules;
static Slots<CUgraphExec> execs;
static Slots<CUdeviceptr> memory;

static void allowed(const char* what, CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_READY:
    case CUDA_ERROR_NOT_FOUND:
      return;
    default:
      std::printf("%s: code %d\n", what, result);
      std::exit(1);
  }
}

template <typename T>
static void put(Slots<T>& in, int slot, T made) {
  in.slots[slot] = made;  // what was there is leaked, or somebody else's
}

static void destroy_one(int kind, int slot) {
  if (kind == 0) allowed("stream destroy", cuStreamDestroy(streams.slots[slot]));
  if (kind == 1) allowed("event destroy", cuEventDestroy(events.slots[slot]));
  if (kind == 2) allowed("unload", cuModuleUnload(modules.slots[slot]));
  if (kind == 3) allowed("exec destroy", cuGraphExecDestroy(execs.slots[slot]));
  if (kind == 4) allowed("free", cuMemFree(memory.slots[slot]));
}

static void make_one(int kind, int slot, CUgraph graph) {
  if (kind == 0) {
    CUstream made;
    CHECK_DRIVER(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    put(streams, slot, made);
  } else if (kind == 1) {
    CUevent made;
    CHECK_DRIVER(cuEventCreate(&made, 0));
    put(events, slot, made);
  } else if (kind == 2) {
    CUmodule made;
    CHECK_DRIVER(cuModuleLoadData(&made, kPtx));
    put(modules, slot, made);
  } else if (kind == 3) {
    CUgraphExec made;
    CHECK_DRIVER(cuGraphInstantiate(&made, graph, 0));
    put(execs, slot, made);
  } else {
    CUdeviceptr made;
    CHECK_DRIVER(cuMemAlloc(&made, 4096));
    put(memory, slot, made);
  }
}

static void use_one(int slot) {
  const CUstream stream = streams.slots[slot];
  const CUevent event = events.slots[(slot + 1) % kSlots];
  if (!stream) return;
  CUfunction function;
  const CUresult found = cuModuleGetFunction(&function, modules.slots[slot], "nothing");
  allowed("function", found);
  if (found == CUDA_SUCCESS) {
    allowed("launch", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  }
  allowed("record", cuEventRecord(event, stream));
  allowed("wait", cuStreamWaitEvent(stream, event, 0));
  allowed("query", cuEventQuery(event));
  allowed("graph", cuGraphLaunch(execs.slots[slot], stream));
  allowed("synchronize", cuStreamSynchronize(stream));
}

int main() {
  CHECK(cudaFree(nullptr));
  CUgraph graph;
  CUgraphNode node;
  CHECK_DRIVER(cuGraphCreate(&graph, 0));
  CHECK_DRIVER(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  for (int kind = 0; kind < 5; ++kind) {
    for (int slot = 0; slot < kSlots; ++slot) make_one(kind, slot, graph);
  }
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([id, graph] {
      CHECK(cudaFree(nullptr));
      std::mt19937 random(static_cast<unsigned>(id));
      for (int step = 0; step < kSteps; ++step) {
        const int slot = static_cast<int>(random() % kSlots), kind = static_cast<int>(random() % 5);
        switch (random() % 4) {
          case 0:
            destroy_one(kind, slot);
            break;
          case 1:
            make_one(kind, slot, graph);
            break;
          default:
            use_one(slot);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_DRIVER(cuCtxSynchronize());
  CHECK_DRIVER(cuGraphDestroy(graph));
  real_work();
  return passed();
}
