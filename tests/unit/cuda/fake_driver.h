// A library in place of NVIDIA's: a GPU that can do nothing but be asked for memory.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bandsaw::cuda {

struct FakeGpu {
  uint64_t pool_reserved = 0, pool_used = 0;  // of all pools
  uint64_t graph_reserved = 0, graph_needs = 0;
  int uploads = 0, graph_launches = 0, contexts = 0;
  // Graphs that are alive, and by its handle what a node has within it.
  int graphs = 0;
  std::map<CUgraphNode, std::vector<CUgraph>> inner;
  uint64_t limits[CU_LIMIT_MAX] = {1024, 1 << 20, 8 << 20};
  int local_bytes = 0;     // of every kernel
  int primaries = 0;       // times that the primary context was retained and not released
  int greens = 0;          // contexts over it
  uint32_t sms = 20;       // 0: the driver cannot split them
  uint32_t green_sms = 0;  // of the green context made last
  int failures = 0;        // to come, of cuGreenCtxCreate
  int modules = 0;
  int reaches_all = 0;  // 1: kernels reach all memory of their process
  int waits = 0;        // for all that a context has
  bool ready = true;    // what streams say of themselves,
  int asked = 0;        // and how often they were asked, or waited for
  CUstream capturing = nullptr;
  // What was put on streams, as "write S", "record S", "wait S": by S the legacy stream L, or a letter in the order in
  // which streams were made, from a on.
  std::vector<std::string> calls;
  int streams = 0;
  // Physical memory by handle, and what is mapped where.
  struct Memory {
    uint64_t bytes = 0;
    bool on_device = true;
    int content = 0;
  };
  std::map<CUmemGenericAllocationHandle, Memory> memory;
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
  // Of every module: variables by their names.
  struct Variable {
    CUdeviceptr address = 0;
    int content = 0;
  };
  std::map<std::string, Variable> variables;
  bool no_device_memory = false;
  int host_memory_made = 0;  // times
  int registered = 0;        // times, by several threads
  bool registers = false;    // host memory; where it does, runners warm up their copies too
  int map_failures = 0;      // above 0: of the next so many mappings the last one fails
};

// The one that the library is about; anybody may change it between calls.
FakeGpu& fake_gpu();

}  // namespace bandsaw::cuda
