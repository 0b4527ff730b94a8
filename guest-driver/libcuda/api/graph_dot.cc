// cuGraphDebugDotPrint: a graph as a drawing for Graphviz.
#include <cstdio>
#include <cstring>
#include <memory>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/graph_copy.h"
#include "guest-driver/libcuda/api/graph_payload.h"
#include "guest-driver/libcuda/api/handles.h"

namespace bandsaw::libcuda {
namespace {

const char* type_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "WAIT_EVENT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    default:
      return "OTHER";
  }
}

CUresult print_node(FILE* file, CUgraphNode node) {
  Call call;
  uint32_t type = 0;
  std::vector<std::byte> payload;
  const CUresult result = get_node(call, node, &type, &payload);
  if (result != CUDA_SUCCESS) return result;
  const auto shown = staged_copy_of(node) ? CU_GRAPH_NODE_TYPE_MEMCPY : static_cast<CUgraphNodeType>(type);
  const char* detail = "";
  vgpu_launch launch;
  if (shown == CU_GRAPH_NODE_TYPE_KERNEL && read_payload(payload, &launch)) {
    if (const FunctionRecord* function = find_function(launch.function)) detail = function->name.c_str();
  }
  std::fprintf(file, "  \"%p\" [shape=record,label=\"{%u|%s|%s}\"];\n", static_cast<void*>(node), local_id(node),
               type_name(shown), detail);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  size_t count = 0, edges = 0;
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuGraphGetNodes(graph, nullptr, &count);
  if (result == CUDA_SUCCESS) result = cuGraphGetEdges(graph, nullptr, nullptr, &edges);
  std::vector<CUgraphNode> list(count), from(edges), to(edges);
  if (result == CUDA_SUCCESS && count) result = cuGraphGetNodes(graph, list.data(), &count);
  if (result == CUDA_SUCCESS && edges) result = cuGraphGetEdges(graph, from.data(), to.data(), &edges);
  if (result != CUDA_SUCCESS) return result;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "we"), std::fclose);
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(file.get(), "digraph dot {\n  label=\"graph_%u\";\n", find_graph(graph)->id);
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) result = print_node(file.get(), list[i]);
  for (size_t i = 0; i < edges; ++i) {
    std::fprintf(file.get(), "  \"%p\" -> \"%p\";\n", static_cast<void*>(from[i]), static_cast<void*>(to[i]));
  }
  std::fprintf(file.get(), "}\n");
  return result;
}

}  // extern "C"
