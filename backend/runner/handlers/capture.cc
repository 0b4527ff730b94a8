#include <cstring>

#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {

using wire::HandleKind;

// Handles of nodes, as bytes of a record. Not trusted.
CUresult Handlers::find_nodes(Bytes handles, std::vector<NodeRef>* nodes) {
  if (handles.size() % sizeof(uint64_t) != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < handles.size(); at += sizeof(uint64_t)) {
    uint64_t handle = 0;
    std::memcpy(&handle, handles.data() + at, sizeof(handle));
    nodes->push_back(std::static_pointer_cast<Node>(table().find(HandleKind::kNode, handle)));
    if (!nodes->back()) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Nodes as handles in a reply; new ones belong to `graph`.
CUresult Handlers::list_nodes(const std::vector<NodeRef>& nodes, uint64_t graph, std::string* out) {
  for (const NodeRef& node : nodes) {
    uint64_t handle = 0;
    const CUresult result = give(HandleKind::kNode, node, graph, &handle, true);
    if (result != CUDA_SUCCESS) return result;
    out->append(reinterpret_cast<const char*>(&handle), sizeof(handle));
  }
  return CUDA_SUCCESS;
}

bool Handlers::is_capturing(const StreamRef& stream) {
  if (capturing_.empty()) return false;
  CaptureInfo info;
  return device_.capture_info(stream, &info) == CUDA_SUCCESS && info.status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool Handlers::becomes_node(const CommandRing& ring, const wire::CheckedRecord& record) {
  if (capturing_.empty() || record.info->stream < 0) return false;
  wire::CallContext call;
  call.ring = ring.id();
  call.context.object = std::static_pointer_cast<Context>(table().find(HandleKind::kContext, record.context));
  const StreamRef stream = world_.objects.find_stream(call, wire::handle_at(record, record.info->stream));
  return stream && is_capturing(stream);
}

CUresult Handlers::capture_begin(C, R<Stream> stream, uint32_t capture_mode, R<Graph> graph, Bytes dependencies) {
  std::vector<NodeRef> nodes;
  if (capture_mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = find_nodes(dependencies, &nodes);
  if (result != CUDA_SUCCESS) return result;
  result = device_.capture_begin(stream, static_cast<CUstreamCaptureMode>(capture_mode), graph, nodes);
  // It spares processes that do not capture a question per copy.
  if (result == CUDA_SUCCESS) capturing_.insert(stream.object.get());
  return result;
}

CUresult Handlers::capture_end(C, R<Stream> stream, uint64_t* graph) {
  GraphRef captured;
  const CUresult result = device_.capture_end(stream, &captured);
  if (!is_capturing(stream)) capturing_.erase(stream.object.get());
  if (result != CUDA_SUCCESS) return result;
  return give(HandleKind::kGraph, std::move(captured), 0, graph, true);
}

CUresult Handlers::capture_info(C, R<Stream> stream, vgpu_capture_info* info, std::string* dependencies) {
  CaptureInfo capture;
  CUresult result = device_.capture_info(stream, &capture);
  if (result != CUDA_SUCCESS) return result;
  info->status = capture.status;
  info->id = capture.id;
  if (!capture.graph) return CUDA_SUCCESS;
  uint64_t graph = 0;
  result = give(HandleKind::kGraph, capture.graph, 0, &graph, true);
  if (result != CUDA_SUCCESS) return result;
  info->graph = graph;
  info->dependencies = static_cast<uint32_t>(capture.dependencies.size());
  return list_nodes(capture.dependencies, graph, dependencies);
}

CUresult Handlers::capture_update(C, R<Stream> stream, uint32_t flags, Bytes dependencies) {
  std::vector<NodeRef> nodes;
  const CUresult result = find_nodes(dependencies, &nodes);
  return result == CUDA_SUCCESS ? device_.capture_update(stream, flags, nodes) : result;
}

}  // namespace bandsaw::runner
