#include "backend/runner/handlers/node_payload.h"

#include <cstring>
#include <utility>

#include "backend/runner/execution/graph_segments.h"
#include "backend/runner/handlers/copies.h"
#include "backend/runner/handlers/handlers.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

using wire::HandleKind;
using Bytes = std::span<const std::byte>;

// A graph whose child is itself, should a device let it through, would never end otherwise.
constexpr int kChildDepthMax = 32;
constexpr size_t kNodesMax = 1u << 20;

// The payload as a structure; false: it is not that long.
template <typename T>
bool read(Bytes payload, T* value) {
  if (payload.size() != sizeof(T)) return false;
  std::memcpy(value, payload.data(), sizeof(T));
  return true;
}

template <typename T>
void write(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

CUresult decode_launch(Objects& objects, Bytes payload, NodeContent* content) {
  vgpu_launch launch;
  if (payload.size() < sizeof(launch)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&launch, payload.data(), sizeof(launch));
  content->launch.code = find_code(objects, launch.function);
  if (!content->launch.code.kernel && !content->launch.code.function) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = read_launch(launch, &content->launch)) return result;
  const Bytes parameters = payload.subspan(sizeof(launch));
  content->parameter_bytes.assign(parameters.begin(), parameters.end());
  content->launch.parameters = content->parameter_bytes;
  return CUDA_SUCCESS;
}

CUresult decode_copy(Objects& objects, const GuestMemory& memory, Bytes payload, NodeContent* content) {
  vgpu_copy_node node;
  if (!read(payload, &node)) return CUDA_ERROR_INVALID_VALUE;
  if (node.copy.width_bytes == 0 || node.copy.height == 0 || node.copy.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  CopyHolds holds;  // let go of at once: GraphMemory holds the regions while the graph runs
  return resolve_copy(objects.table(), memory, node.copy, &content->copy, &holds);
}

CUresult decode_fill(const GuestMemory& memory, Bytes payload, NodeContent* content) {
  vgpu_fill_node node;
  if (!read(payload, &node)) return CUDA_ERROR_INVALID_VALUE;
  RegionRef hold;
  content->fill = node.fill;
  return resolve_fill(memory, node.fill, &hold);
}

CUresult decode_alloc(Objects& objects, Bytes payload, NodeContent* content) {
  vgpu_alloc_node node;
  if (!read(payload, &node)) return CUDA_ERROR_INVALID_VALUE;
  if (node.pool != 0) {
    content->pool = std::static_pointer_cast<Pool>(objects.find(HandleKind::kPool, node.pool));
    if (!content->pool) return CUDA_ERROR_INVALID_HANDLE;
  }
  content->bytes = node.bytes;
  content->address = node.address;
  return CUDA_SUCCESS;
}

CUresult decode_operations(Bytes payload, NodeContent* content) {
  const size_t count = payload.size() / sizeof(vgpu_memory_op);
  if (payload.size() % sizeof(vgpu_memory_op) || count == 0 || count > VGPU_MEMORY_OPS_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  content->operations.resize(count);
  std::memcpy(content->operations.data(), payload.data(), payload.size());
  for (const vgpu_memory_op& operation : content->operations) {
    const bool word = operation.kind == VGPU_MEMORY_OP_WRITE || operation.kind == VGPU_MEMORY_OP_WAIT;
    if (!word && operation.kind != VGPU_MEMORY_OP_BARRIER) return CUDA_ERROR_INVALID_VALUE;
    if (word && operation.bytes != 4 && operation.bytes != 8) return CUDA_ERROR_INVALID_VALUE;
    if (word && operation.address % operation.bytes) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

template <typename T>
CUresult decode_handle(Objects& objects, HandleKind kind, Bytes payload, std::shared_ptr<T>* object) {
  uint64_t handle = 0;
  if (!read(payload, &handle)) return CUDA_ERROR_INVALID_VALUE;
  *object = std::static_pointer_cast<T>(objects.find(kind, handle));
  return *object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult decode_event(Objects& objects, Bytes payload, NodeContent* content) {
  uint64_t handle = 0;
  const CUresult result = decode_handle(objects, HandleKind::kEvent, payload, &content->event);
  if (result == CUDA_SUCCESS && read(payload, &handle)) objects.note_in_graphs(handle);
  return result;
}

// The handle alone is a graph that is copied.
CUresult decode_child(Objects& objects, Bytes payload, NodeContent* content) {
  vgpu_moved_child_node child;
  content->moved = read(payload, &child);
  if (!content->moved) return decode_handle(objects, HandleKind::kGraph, payload, &content->child);
  if (child.reserved) return CUDA_ERROR_INVALID_VALUE;
  return decode_handle(objects, HandleKind::kGraph, payload.first(sizeof(child.graph)), &content->child);
}

// The way back of read_launch.
vgpu_launch write_launch(const Launch& from) {
  vgpu_launch launch{};
  std::memcpy(launch.grid, from.grid, sizeof(launch.grid));
  std::memcpy(launch.block, from.block, sizeof(launch.block));
  std::memcpy(launch.cluster, from.cluster, sizeof(launch.cluster));
  std::memcpy(launch.preferred_cluster, from.preferred_cluster, sizeof(launch.preferred_cluster));
  launch.shared_bytes = from.shared_bytes;
  launch.flags = (from.cooperative ? VGPU_LAUNCH_COOPERATIVE : 0) | (from.programmatic ? VGPU_LAUNCH_PROGRAMMATIC : 0) |
                 (from.carveout ? VGPU_LAUNCH_CARVEOUT : 0);
  launch.priority = from.priority;
  launch.cluster_policy = from.cluster_policy;
  launch.sync_domain = from.sync_domain;
  launch.carveout = from.carveout.value_or(0);
  return launch;
}

void encode_launch(Objects& objects, const NodeContent& content, std::string* payload) {
  const Code& code = content.launch.code;
  vgpu_launch launch = write_launch(content.launch);
  launch.function =
      code.kernel ? objects.table().handle_of(code.kernel.get()) : objects.table().handle_of(code.function.get());
  write(launch, payload);
  payload->append(reinterpret_cast<const char*>(content.parameter_bytes.data()), content.parameter_bytes.size());
}

}  // namespace

CUresult read_launch(const vgpu_launch& from, Launch* launch) {
  constexpr uint32_t kKnown = VGPU_LAUNCH_COOPERATIVE | VGPU_LAUNCH_PROGRAMMATIC | VGPU_LAUNCH_CARVEOUT;
  if (from.flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; ++i) {
    if (from.grid[i] == 0 || from.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    launch->grid[i] = from.grid[i];
    launch->block[i] = from.block[i];
    launch->cluster[i] = from.cluster[i];
    launch->preferred_cluster[i] = from.preferred_cluster[i];
  }
  launch->shared_bytes = from.shared_bytes;
  launch->cooperative = (from.flags & VGPU_LAUNCH_COOPERATIVE) != 0;
  launch->programmatic = (from.flags & VGPU_LAUNCH_PROGRAMMATIC) != 0;
  launch->priority = from.priority;
  launch->cluster_policy = from.cluster_policy;
  launch->sync_domain = from.sync_domain;
  if (from.flags & VGPU_LAUNCH_CARVEOUT) launch->carveout = from.carveout;
  return CUDA_SUCCESS;
}

CUresult decode_node(Objects& objects, const GuestMemory& memory, uint32_t type, Bytes payload, NodeContent* content) {
  // Only a number that the enumeration can hold becomes one.
  if (type <= CU_GRAPH_NODE_TYPE_CONDITIONAL) content->type = static_cast<CUgraphNodeType>(type);
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return decode_launch(objects, payload, content);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return decode_copy(objects, memory, payload, content);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return decode_fill(memory, payload, content);
    case CU_GRAPH_NODE_TYPE_HOST: {
      vgpu_host_node node;
      if (!read(payload, &node)) return CUDA_ERROR_INVALID_VALUE;
      content->host = {VGPU_CALLBACK_HOST_FUNCTION, node.function, node.data, 0};
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return decode_child(objects, payload, content);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return payload.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return decode_event(objects, payload, content);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return decode_alloc(objects, payload, content);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return decode_operations(payload, content);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
      const uint32_t most = VGPU_CONDITIONAL_BODIES_MAX;
      const bool whole = read(payload, &content->conditional);
      return whole && content->conditional.size <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    default:
      log::warn("a graph node of type {}: not supported", type);
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult encode_node(Objects& objects, const GuestMemory& memory, const NodeContent& content, uint64_t node,
                     uint64_t context, std::string* payload) {
  HandleTable& table = objects.table();
  switch (content.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      encode_launch(objects, content, payload);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      write(vgpu_copy_node{describe_copy(table, memory, content.copy), context}, payload);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      write(vgpu_fill_node{content.fill, context}, payload);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
      write(vgpu_host_node{content.host.function, content.host.data}, payload);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const uint64_t child = table.add_once(HandleKind::kGraph, content.child, node);
      write(child, payload);
      return child != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      write(table.handle_of(content.event.get()), payload);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      write(vgpu_alloc_node{table.handle_of(content.pool.get()), content.bytes, content.address}, payload);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      for (const vgpu_memory_op& operation : content.operations) write(operation, payload);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      write(content.conditional, payload);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

void GraphMemory::add(const Node* node, const NodeContent& content, Ranges* ranges) {
  if (content.type != CU_GRAPH_NODE_TYPE_MEMCPY) return;
  const Copy& copy = content.copy;
  uint64_t moved = copy.width_bytes * copy.height * copy.depth;
  for (const CopyEnd* end : {&copy.destination, &copy.source}) {
    uint64_t bytes = 0;
    if (!end->host || !copy_extent(copy, *end, &bytes)) continue;
    ranges->push_back({node, end->address, bytes, index_of(engine_of(copy)), std::exchange(moved, 0)});
  }
}

void GraphMemory::add_inside(const NodeContent& content, Inside* inside) {
  const bool copy = content.type == CU_GRAPH_NODE_TYPE_MEMCPY && engine_of(content.copy) == Engine::kCompute;
  inside->cut &= may_be_cut(content);
  inside->nodes += copy || content.type == CU_GRAPH_NODE_TYPE_KERNEL || content.type == CU_GRAPH_NODE_TYPE_MEMSET;
  if (copy) inside->bytes += content.copy.width_bytes * content.copy.height * content.copy.depth;
}

CUresult GraphMemory::collect(const GraphRef& graph, int depth, size_t* seen, Ranges* ranges, Inside* inside) const {
  std::vector<NodeRef> nodes;
  CUresult result = device_->graph_nodes(graph, false, &nodes);
  *seen += nodes.size() + 1;
  if (depth > kChildDepthMax || *seen > kNodesMax) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < nodes.size() && result == CUDA_SUCCESS; ++i) {
    NodeContent content;
    result = device_->node_get(nodes[i], &content);
    if (result != CUDA_SUCCESS) break;
    add(nodes[i].get(), content, ranges);
    add_inside(content, inside);
    std::vector<GraphRef> inner;
    if (content.type == CU_GRAPH_NODE_TYPE_GRAPH) inner.push_back(content.child);
    if (content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) result = device_->node_bodies(nodes[i], &inner);
    for (size_t k = 0; k < inner.size() && result == CUDA_SUCCESS; ++k) {
      result = collect(inner[k], depth + 1, seen, ranges, inside);
    }
  }
  return result;
}

void GraphMemory::count_copies(const Ranges& ranges, Exec* exec) {
  std::array<uint64_t, kEngines> nodes{}, bytes{};
  for (const Range& range : ranges) {
    nodes[range.engine] += range.moved != 0;
    bytes[range.engine] += range.moved;
  }
  for (const unsigned engine : {kCopyIn, kCopyOut}) {
    exec->nodes[engine] = nodes[engine];
    exec->bytes[engine] = bytes[engine];
  }
}

CUresult GraphMemory::note(const ExecRef& exec, const GraphRef& graph, bool* cut) {
  Ranges ranges;
  Inside inside;
  size_t seen = 0;
  const CUresult result = collect(graph, 0, &seen, &ranges, &inside);
  *cut = inside.cut;
  if (result == CUDA_SUCCESS) set(exec, std::move(ranges), inside);
  return result;
}

void GraphMemory::add_steps(std::span<const ExecStep> steps, Ranges* ranges, Inside* inside) {
  for (const ExecStep& step : steps) {
    add(step.node.get(), step.content, ranges);
    add_inside(step.content, inside);
    for (const std::vector<ExecStep>& body : step.bodies) add_steps(body, ranges, inside);
  }
}

void GraphMemory::note_steps(const ExecRef& exec, std::span<const ExecStep> steps) {
  Ranges ranges;
  Inside inside;
  add_steps(steps, &ranges, &inside);
  set(exec, std::move(ranges), inside);
}

void GraphMemory::set(const ExecRef& exec, Ranges ranges, const Inside& inside) {
  exec->nodes[kCompute] = inside.nodes;
  exec->bytes[kCompute] = inside.bytes;
  count_copies(ranges, exec.get());
  std::lock_guard lock(mutex_);
  if (ranges.empty()) {
    execs_.erase(exec.get());
  } else {
    execs_[exec.get()] = {exec, std::move(ranges)};
  }
}

void GraphMemory::note_node(const ExecRef& exec, const Node* node, const NodeContent& content) {
  if (content.type != CU_GRAPH_NODE_TYPE_MEMCPY) return;
  std::lock_guard lock(mutex_);
  auto& [owner, ranges] = execs_[exec.get()];
  owner = exec;
  std::erase_if(ranges, [node](const Range& range) { return range.node == node; });
  add(node, content, &ranges);
  count_copies(ranges, exec.get());
}

void GraphMemory::forget(const ExecRef& exec) {
  std::lock_guard lock(mutex_);
  execs_.erase(exec.get());
}

std::optional<std::vector<RegionRef>> GraphMemory::hold(const ExecRef& exec) const {
  std::vector<RegionRef> regions;
  std::lock_guard lock(mutex_);
  const auto known = execs_.find(exec.get());
  // An exec that went with its context leaves its entry; another one at the same address is not it.
  if (known == execs_.end() || known->second.first.lock() != exec) return regions;
  for (const Range& range : known->second.second) {
    GuestSpan span = memory_->find_pointer(range.pointer, range.bytes);
    if (!span) return std::nullopt;
    regions.push_back(std::move(span.region));
  }
  return regions;
}

}  // namespace bandsaw::runner
