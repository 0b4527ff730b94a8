#include "guest-driver/libcuda/api/graph_copy.h"

#include <cstring>

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
void set_payload(const T& value, std::vector<std::byte>* payload) {
  const auto bytes = bytes_of(value);
  payload->assign(bytes.begin(), bytes.end());
}

const std::byte* row_of(const vgpu_copy_end& end, uint64_t y, uint64_t z) {
  return reinterpret_cast<const std::byte*>(end.address + (z * end.height + y) * end.pitch);
}

// Moves a box between two places that this process reaches.
void move_box(const vgpu_copy& shape, const vgpu_copy_end& to, const vgpu_copy_end& from) {
  for (uint64_t z = 0; z < shape.depth; ++z) {
    for (uint64_t y = 0; y < shape.height; ++y) {
      std::memmove(const_cast<std::byte*>(row_of(to, y, z)), row_of(from, y, z), shape.width_bytes);
    }
  }
}

// What cuGraphMemcpyNodeGetParams tells about a captured copy.
CUDA_MEMCPY3D describe(const vgpu_copy& copy, const StagedCopy& staged) {
  CUDA_MEMCPY3D asked{};
  const auto name = [](const vgpu_copy_end& end, bool program, CUmemorytype* type, auto* host, CUdeviceptr* device,
                       CUarray* array) {
    if (program) {
      *type = CU_MEMORYTYPE_HOST;
      *host = reinterpret_cast<void*>(end.address);
    } else if (end.kind == VGPU_MEMORY_ARRAY) {
      *type = CU_MEMORYTYPE_ARRAY;
      *array = from_wire<CUarray>(end.address);
    } else {
      *type = CU_MEMORYTYPE_DEVICE;
      *device = end.address;
    }
  };
  name(copy.source, staged.from_program(), &asked.srcMemoryType, &asked.srcHost, &asked.srcDevice, &asked.srcArray);
  name(copy.destination, staged.to_program(), &asked.dstMemoryType, &asked.dstHost, &asked.dstDevice, &asked.dstArray);
  asked.srcPitch = copy.source.pitch;
  asked.srcHeight = copy.source.height;
  asked.srcXInBytes = copy.source.x_bytes;
  asked.srcY = copy.source.y;
  asked.srcZ = copy.source.z;
  asked.dstPitch = copy.destination.pitch;
  asked.dstHeight = copy.destination.height;
  asked.dstXInBytes = copy.destination.x_bytes;
  asked.dstY = copy.destination.y;
  asked.dstZ = copy.destination.z;
  asked.WidthInBytes = copy.width_bytes;
  asked.Height = copy.height;
  asked.Depth = copy.depth;
  return asked;
}

}  // namespace

StagedCopy::~StagedCopy() {
  // Waits until no launch uses the memory. Fails only when the host is gone.
  if (block_.address) static_cast<void>(block_.memory->release(block_.address));
}

CUresult StagedCopy::make(const vgpu_copy& copy, bool to_program, bool from_program,
                          std::shared_ptr<StagedCopy>* made) {
  const CUresult started = start_callback_thread(current_gpu());
  if (started != CUDA_SUCCESS) return started;
  auto staged = std::make_shared<StagedCopy>();
  staged->copy_ = copy;
  staged->to_program_ = to_program;
  staged->from_program_ = from_program;
  if (!to_program || !from_program) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(copy.width_bytes, copy.height, &bytes) ||
        __builtin_mul_overflow(bytes, copy.depth, &bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = current_gpu().memory->allocate(bytes, 0, &staged->block_);
    if (result != CUDA_SUCCESS) return result;
  }
  *made = std::move(staged);
  return CUDA_SUCCESS;
}

vgpu_copy_end StagedCopy::staged_end() const {
  vgpu_copy_end end{};
  end.address = reinterpret_cast<uint64_t>(block_.address);
  end.pitch = copy_.width_bytes;
  end.height = copy_.height;
  end.kind = VGPU_MEMORY_HOST;
  return end;
}

void StagedCopy::gather(void* self) {
  const auto& copy = *static_cast<StagedCopy*>(self);
  move_box(copy.copy_, copy.staged_end(), copy.copy_.source);
}

void StagedCopy::scatter(void* self) {
  const auto& copy = *static_cast<StagedCopy*>(self);
  move_box(copy.copy_, copy.copy_.destination, copy.staged_end());
}

void StagedCopy::move(void* self) {
  const auto& copy = *static_cast<StagedCopy*>(self);
  move_box(copy.copy_, copy.copy_.destination, copy.copy_.source);
}

vgpu_host_node StagedCopy::host_node() const {
  const CUhostFn function = to_program_ ? (from_program_ ? move : scatter) : gather;
  return {reinterpret_cast<uint64_t>(function), reinterpret_cast<uint64_t>(this)};
}

vgpu_copy_node StagedCopy::copy_node(uint64_t context) const {
  vgpu_copy_node node{copy_, context};
  (to_program_ ? node.copy.destination : node.copy.source) = staged_end();
  return node;
}

CUresult StagedCopy::make_graph(Call& call, uint64_t* graph) {
  CUresult result = wire::graph_create(call, graph);
  if (result != CUDA_SUCCESS) return result;
  const vgpu_host_node host = host_node();
  uint64_t first = 0, last = 0;
  if (to_program_ && from_program_) {
    return wire::graph_add_node(call, *graph, CU_GRAPH_NODE_TYPE_HOST, 0, bytes_of(host), &first, nullptr);
  }
  const vgpu_copy_node node = copy_node(call.context());
  const auto add = [&](bool is_host, uint64_t after, uint64_t* made) {
    std::vector<std::byte> data;
    const auto payload = is_host ? bytes_of(host) : bytes_of(node);
    if (after) data.insert(data.end(), bytes_of(after).begin(), bytes_of(after).end());
    data.insert(data.end(), payload.begin(), payload.end());
    return wire::graph_add_node(call, *graph, is_host ? CU_GRAPH_NODE_TYPE_HOST : CU_GRAPH_NODE_TYPE_MEMCPY,
                                after ? 1 : 0, data, made, nullptr);
  };
  result = add(from_program_, 0, &first);
  return result == CUDA_SUCCESS ? add(to_program_, first, &last) : result;
}

CUresult StagedCopy::change_graph(Call& call, uint64_t graph) const {
  uint32_t count = 0;
  std::vector<std::byte> handles;
  CUresult result = wire::graph_nodes(call, graph, 0, &count, &handles);
  const vgpu_host_node host = host_node();
  const vgpu_copy_node copy = copy_node(call.context());
  for (size_t at = 0; at + sizeof(uint64_t) <= handles.size() && result == CUDA_SUCCESS; at += sizeof(uint64_t)) {
    uint64_t node = 0;
    uint32_t type = 0;
    std::vector<std::byte> now;
    std::memcpy(&node, handles.data() + at, sizeof(node));
    result = wire::node_get(call, node, &type, &now);
    if (result != CUDA_SUCCESS) return result;
    result = wire::node_set(call, node, type == CU_GRAPH_NODE_TYPE_HOST ? bytes_of(host) : bytes_of(copy));
  }
  return result;
}

CUresult copy_payload(Call& call, const vgpu_copy& copy, Side destination, Side source, CUcontext context,
                      CopyPayload* made) {
  if (!copy.width_bytes || !copy.height || !copy.depth) return CUDA_ERROR_INVALID_VALUE;
  vgpu_copy resolved = copy;
  const Extent extent{copy.width_bytes, copy.height, copy.depth};
  Place to, from;
  CUresult result = resolve_end(extent, destination, &resolved.destination, &to);
  if (result == CUDA_SUCCESS) result = resolve_end(extent, source, &resolved.source, &from);
  if (result != CUDA_SUCCESS) return result;
  // Nobody could tell whether the address is valid before the graph runs.
  if (to == Place::kUnknown || from == Place::kUnknown) return CUDA_ERROR_INVALID_VALUE;
  if (!is_pageable(to) && !is_pageable(from)) {
    set_payload(vgpu_copy_node{resolved, wire_context(context)}, &made->payload);
    return CUDA_SUCCESS;
  }
  made->type = CU_GRAPH_NODE_TYPE_GRAPH;
  result = StagedCopy::make(resolved, is_pageable(to), is_pageable(from), &made->staged);
  if (result == CUDA_SUCCESS) result = made->staged->make_graph(call, &made->child);
  set_payload(made->child, &made->payload);
  if (result != CUDA_SUCCESS && made->child) wire::graph_destroy(call, std::exchange(made->child, 0));
  return result;
}

CUresult remember_copy(GraphRecord* graph, uint64_t node, const std::shared_ptr<StagedCopy>& staged,
                       const CUDA_MEMCPY3D& asked) {
  NodeRecord* const record = node_record(node);
  if (!record) return CUDA_ERROR_UNKNOWN;
  bool is_new = true;
  {
    std::lock_guard lock(record->mutex);
    is_new = record->graph != graph->handle;
    record->graph = graph->handle;
    record->copy = staged;
    record->asked = asked;
  }
  std::lock_guard lock(graph->mutex);
  if (staged) graph->copies.insert(staged);
  if (is_new) graph->copy_nodes.push_back(node);
  return CUDA_SUCCESS;
}

std::shared_ptr<StagedCopy> staged_copy_of(CUgraphNode node) {
  NodeRecord* const record = nodes().find(node);
  if (!record) return nullptr;
  std::lock_guard lock(record->mutex);
  return record->copy;
}

void keep_copies(GraphRecord* from, GraphRecord* to) {
  if (!from || !to || from == to) return;
  std::scoped_lock lock(from->mutex, to->mutex);
  to->copies.insert(from->copies.begin(), from->copies.end());
  to->kept.insert(to->kept.end(), from->kept.begin(), from->kept.end());
}

void forget_graph(GraphRecord* graph) {
  const uint64_t handle = graph->handle;
  std::set<std::shared_ptr<StagedCopy>> copies;  // released without the lock: that may wait
  std::vector<std::shared_ptr<UserObject>> kept;
  {
    std::lock_guard lock(graph->mutex);
    copies.swap(graph->copies);
    kept.swap(graph->kept);
    for (const uint64_t node : graph->copy_nodes) forget_node(node);
  }
  if (wire::kind_of(handle) == wire::HandleKind::kExec) {
    execs().remove(handle);
  } else {
    remove_graph(handle);
  }
}

void forget_node(uint64_t node) {
  NodeRecord* const record = nodes().find(node);
  if (!record) return;
  {
    std::lock_guard lock(record->mutex);
    record->copy = nullptr;  // the graph still has it, for launches under way
  }
  nodes().remove(node);
}

CUresult capture_pageable_copy(Call& call, const vgpu_copy& copy, Side destination, Side source, uint64_t stream) {
  vgpu_capture_info info{};
  std::vector<std::byte> data;  // the node's dependencies, then its payload
  CUresult result = wire::capture_info(call, stream, &info, &data);
  if (result != CUDA_SUCCESS) return result;
  GraphRecord* const graph = info.graph ? adopt_graph(info.graph) : nullptr;
  if (!graph) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CopyPayload made;
  result = copy_payload(call, copy, destination, source, nullptr, &made);
  if (result != CUDA_SUCCESS) return result;
  const auto dependencies = static_cast<uint32_t>(data.size() / sizeof(uint64_t));
  data.insert(data.end(), made.payload.begin(), made.payload.end());
  uint64_t node = 0;
  result = wire::graph_add_node(call, graph->handle, made.type, dependencies, data, &node, nullptr);
  if (made.child) wire::graph_destroy(call, made.child);
  if (result == CUDA_SUCCESS && made.staged)
    result = remember_copy(graph, node, made.staged, describe(copy, *made.staged));
  if (result != CUDA_SUCCESS) return result;
  return wire::capture_update(call, stream, CU_STREAM_SET_CAPTURE_DEPENDENCIES, bytes_of(node));
}

}  // namespace bandsaw::libcuda
