// cuGraphDebugDotPrint: a graph, and those in it, as a drawing for Graphviz. Shapes, and what a label begins with, are
// those of NVIDIA's driver.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/graph.h"
#include "guest-driver/libcuda/api/handles.h"

namespace bandsaw::libcuda {
namespace {

using Address = unsigned long long;

char letter_of(CUmemorytype type) {
  if (type == CU_MEMORYTYPE_HOST) return 'H';
  return type == CU_MEMORYTYPE_ARRAY ? 'A' : 'D';
}

Address side(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array) {
  if (type == CU_MEMORYTYPE_HOST) return reinterpret_cast<Address>(host);
  return type == CU_MEMORYTYPE_ARRAY ? reinterpret_cast<Address>(array) : device;
}

class DotFile {
 public:
  DotFile(FILE* file, unsigned flags) : file_(file), flags_(flags) {}

  CUresult print(CUgraph graph);

 private:
  CUresult print_node(CUgraphNode node, const std::string& name, size_t number);
  void print_kernel(size_t number, const CUgraphNodeParams& params);
  void print_copy(size_t number, const CUDA_MEMCPY3D& copy);
  void print_fill(size_t number, const CUgraphNodeParams& params);
  void print_other(size_t number, const CUgraphNodeParams& params);
  void print_allocation(const CUgraphNodeParams& params);
  bool asked(unsigned flag) const { return (flags_ & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0; }

  template <typename... T>
  void say(const char* format, T... values) {
    if constexpr (sizeof...(values) == 0) {
      std::fputs(format, file_);
    } else {
      std::fprintf(file_, format, values...);
    }
  }

  FILE* file_;
  unsigned flags_;
  std::vector<CUgraph> inner_;  // of nodes printed so far, in their order
};

const char* name_of(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "OTHER";
  }
}

void DotFile::print_kernel(size_t number, const CUgraphNodeParams& params) {
  const auto& kernel = params.kernel;
  const FunctionRecord* const function = find_function(to_wire(kernel.func));
  say("[style=\"bold\" shape=\"octagon\" label=\"%zu\n%s\n", number, function ? function->name.c_str() : "KERNEL");
  if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) {
    say("<<<(%u,%u,%u),(%u,%u,%u),%u>>>\n", kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ, kernel.blockDimX,
        kernel.blockDimY, kernel.blockDimZ, kernel.sharedMemBytes);
  }
  if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) say("func handle: %p\n", static_cast<const void*>(kernel.func));
}

void DotFile::print_copy(size_t number, const CUDA_MEMCPY3D& copy) {
  const size_t bytes = copy.WidthInBytes * std::max<size_t>(copy.Height, 1) * std::max<size_t>(copy.Depth, 1);
  say("[style=\"solid\" shape=\"trapezium\" label=\"%zu\nMEMCPY\n(%cto%c,%zu)\n", number, letter_of(copy.srcMemoryType),
      letter_of(copy.dstMemoryType), bytes);
  if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) return;
  say("src: 0x%016llX + (%zu,%zu,%zu), pitch %zu\n",
      side(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray), copy.srcXInBytes, copy.srcY, copy.srcZ,
      copy.srcPitch);
  say("dst: 0x%016llX + (%zu,%zu,%zu), pitch %zu\n",
      side(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray), copy.dstXInBytes, copy.dstY, copy.dstZ,
      copy.dstPitch);
  say("extent: %zu x %zu x %zu\n", copy.WidthInBytes, copy.Height, copy.Depth);
}

void DotFile::print_fill(size_t number, const CUgraphNodeParams& params) {
  const auto& fill = params.memset;
  say("[style=\"solid\" shape=\"invtrapezium\" label=\"%zu\nMEMSET\n(%u,%zu)\n", number, fill.value,
      fill.elementSize * fill.width * fill.height);
  if (!asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) return;
  say("dptr: 0x%016llX, pitch %zu\n", static_cast<Address>(fill.dst), fill.pitch);
  say("elementSize %u, width %zu, height %zu\n", fill.elementSize, fill.width, fill.height);
}

void DotFile::print_allocation(const CUgraphNodeParams& params) {
  const CUmemLocation& location = params.alloc.poolProps.location;
  say("location: type %d, id %d\n", static_cast<int>(location.type), location.id);
  say("bytesize: %zu, dptr: 0x%016llX\n", params.alloc.bytesize, static_cast<Address>(params.alloc.dptr));
}

void DotFile::print_other(size_t number, const CUgraphNodeParams& params) {
  say("[style=\"solid\" shape=\"rectangle\" label=\"%zu\n%s\n", number, name_of(params.type));
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_HOST:
      if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS))
        say("fn: %p\nuserData: %p\n", reinterpret_cast<void*>(params.host.fn), params.host.userData);
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      static_assert(offsetof(CUgraphNodeParams, eventWait.event) == offsetof(CUgraphNodeParams, eventRecord.event));
      if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS))
        say("event: %p\n", static_cast<void*>(params.eventRecord.event));
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS)) print_allocation(params);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS))
        say("dptr: 0x%016llX\n", static_cast<Address>(params.free.dptr));
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS)) say("count: %u\n", params.memOp.count);
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      inner_.insert(inner_.end(), params.conditional.phGraph_out,
                    params.conditional.phGraph_out + params.conditional.size);
      if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS))
        say("type: %d, handle: 0x%016llX, bodies: %u\n", static_cast<int>(params.conditional.type),
            static_cast<Address>(params.conditional.handle), params.conditional.size);
      break;
    default:
      break;
  }
}

CUresult DotFile::print_node(CUgraphNode node, const std::string& name, size_t number) {
  CUgraphNodeParams params;
  const CUresult result = describe_node(node, &params);
  if (result != CUDA_SUCCESS) return result;
  say("\"%s\"", name.c_str());
  if (params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    print_kernel(number, params);
  } else if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    print_copy(number, params.memcpy.copyParams);
  } else if (params.type == CU_GRAPH_NODE_TYPE_MEMSET) {
    print_fill(number, params);
  } else if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    inner_.push_back(params.graph.graph);
    say("[style=\"solid\" shape=\"rectangle\" label=\"%zu\ngraph_%u\n", number, find_graph(params.graph.graph)->id);
  } else {
    print_other(number, params);
  }
  if (asked(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) say("node handle: %p\n", static_cast<void*>(node));
  say("\"];\n\n");
  return CUDA_SUCCESS;
}

// The graph, then those in its nodes.
CUresult DotFile::print(CUgraph graph) {
  size_t count = 0, edges = 0;
  CUresult result = cuGraphGetNodes(graph, nullptr, &count);
  if (result == CUDA_SUCCESS) result = cuGraphGetEdges(graph, nullptr, nullptr, &edges);
  std::vector<CUgraphNode> list(count), from(edges), to(edges);
  if (result == CUDA_SUCCESS && count) result = cuGraphGetNodes(graph, list.data(), &count);
  if (result == CUDA_SUCCESS && edges) result = cuGraphGetEdges(graph, from.data(), to.data(), &edges);
  if (result != CUDA_SUCCESS) return result;
  const std::string title = "graph_" + std::to_string(find_graph(graph)->id);
  std::map<CUgraphNode, std::string> names;
  for (size_t i = 0; i < count; ++i) names[list[i]] = title + "_node_" + std::to_string(i);
  say("subgraph cluster_%u {\nlabel=\"%s\" graph[style=\"dashed\"];\n", find_graph(graph)->id, title.c_str());
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) result = print_node(list[i], names[list[i]], i);
  for (size_t i = 0; i < edges; ++i) say("\"%s\" -> \"%s\";\n", names[from[i]].c_str(), names[to[i]].c_str());
  say("}\n");
  for (CUgraph inner : std::exchange(inner_, {})) {
    if (result == CUDA_SUCCESS) result = print(inner);
  }
  return result;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  if (const CUresult state = health(); state != CUDA_SUCCESS) return state;
  if (!path || !find_graph(graph)) return CUDA_ERROR_INVALID_VALUE;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "we"), std::fclose);
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fputs("digraph dot {\n", file.get());
  const CUresult result = DotFile(file.get(), flags).print(graph);
  std::fputs("}\n", file.get());
  return result;
}

}  // extern "C"
