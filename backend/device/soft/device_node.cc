// A graph node's content: checked, read and changed.
#include "backend/device/soft/array.h"
#include "backend/device/soft/graph.h"
#include "backend/device/soft/soft_device.h"
#include "backend/device/soft/transfer.h"

namespace bandsaw::soft {

namespace {

constexpr int kMovedDepthMax = 32;  // graphs within graphs

bool known_type(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return true;
    default:
      return false;
  }
}

}  // namespace

// What can be said of a node before it is instantiated; addresses may come to life later.
CUresult SoftDevice::check_content(const NodeContent& content) {
  uint64_t extent = 0;
  switch (content.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CodeView code = view(content.launch.code);
      Launch launch = content.launch;
      if (!content.parameter_bytes.empty()) launch.parameters = content.parameter_bytes;
      return code.code ? check_shape(launch, code) : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      for (const CopyEnd* end : {&content.copy.destination, &content.copy.source}) {
        ArrayBox box;
        const CUresult refused = end->array ? find_box(as(end->array), content.copy, *end, &box)
                                 : copy_extent(content.copy, *end, &extent) ? CUDA_SUCCESS
                                                                            : CUDA_ERROR_INVALID_VALUE;
        if (refused) return refused;
      }
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const uint32_t size = content.fill.element_bytes;
      return (size == 1 || size == 2 || size == 4) && content.fill.address % size == 0 &&
                     fill_extent(content.fill, &extent)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return content.host.function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      if (!content.child) return CUDA_ERROR_INVALID_VALUE;
      return as(content.child).has_allocations() && !content.moved ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return content.event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      std::vector<ValueStep> steps;
      return value_steps(content, &steps);
    }
    default:
      return known_type(content.type) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult SoftDevice::node_get(const NodeRef& node, NodeContent* content) {
  std::lock_guard lock(scheduler_.mutex());
  if (as(node).graph.expired()) return CUDA_ERROR_INVALID_VALUE;
  *content = as(node).content;
  content->launch.parameters = content->parameter_bytes;
  return scheduler_.error();
}

CUresult SoftDevice::child_of(const NodeContent& content, const SoftGraph& parent, GraphRef* child) {
  if (content.type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_SUCCESS;
  SoftGraph& given = as(content.child);
  if (!content.moved) {
    *child = given.clone();
    return CUDA_SUCCESS;
  }
  if (given.moved || given.holds(&parent, kMovedDepthMax))
    return CUDA_ERROR_INVALID_VALUE;  // in two places, or within itself
  given.moved = true;
  *child = content.child;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::node_set(const NodeRef& node, const NodeContent& content) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  SoftNode& changed = as(node);
  if (changed.graph.expired() || changed.content.type != content.type) return CUDA_ERROR_INVALID_VALUE;
  if (content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || content.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
      content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return CUDA_ERROR_INVALID_VALUE;  // CUDA has no setters for these
  }
  if (const CUresult refused = check_content(content)) return refused;
  GraphRef child;
  if (const CUresult refused = child_of(content, *changed.graph.lock(), &child)) return refused;
  changed.content = copy_content(content);
  changed.content.child = std::move(child);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
