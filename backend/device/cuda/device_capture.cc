// Stream capture, forwarded. Always in the relaxed mode: threads of this process are not the program's, and which calls
// a capture forbids to which of the program's threads is the guest library's to say.
#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {

void CudaDevice::keep_for_capture(CUstream stream, std::shared_ptr<HostFunction> function) {
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  if (driver_->cuStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr) != CUDA_SUCCESS) return;
  if (!graph) return;
  const CudaGraphRef captured = wrap_graph(graph, false);
  captured->keep(std::move(function));
  std::lock_guard lock(graphs_mutex_);
  captures_.insert(captured);  // nobody else may know the graph before the capture ends
}

CUresult CudaDevice::capture_begin(const StreamRef& stream, CUstreamCaptureMode, const GraphRef& into,
                                   std::span<const NodeRef> dependencies) {
  if (const CUresult result = enter(stream)) return result;
  std::vector<CUgraphNode> after;
  for (const NodeRef& node : dependencies) after.push_back(as(node).handle);
  // The end of a time slice may not be looked for on a stream that captures by then, nor on the legacy one beside it.
  time_slices_->leave(as(stream).context);
  constexpr auto kMode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const auto begin = [&] {
    return into ? driver_->cuStreamBeginCaptureToGraph(as(stream).handle, as(into).handle, after.data(), nullptr,
                                                       after.size(), kMode)
                : driver_->cuStreamBeginCapture(as(stream).handle, kMode);
  };
  return check(streams_->begin_capture(std::static_pointer_cast<CudaStream>(stream), begin));
}

CUresult CudaDevice::capture_end(const StreamRef& stream, GraphRef* graph) {
  if (const CUresult result = enter(stream)) return result;
  CUgraph captured = nullptr;
  const CUresult result = check(driver_->cuStreamEndCapture(as(stream).handle, &captured));
  streams_->capture_ended(as(stream));  // be it without a graph
  if (result != CUDA_SUCCESS || !captured) return result;
  const CudaGraphRef wrapped = wrap_graph(captured, true);
  std::lock_guard lock(graphs_mutex_);
  captures_.erase(wrapped);
  *graph = wrapped;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::capture_info(const StreamRef& stream, CaptureInfo* info) {
  if (const CUresult result = enter(stream)) return result;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  const CUgraphEdgeData* edges = nullptr;  // asked for, or captures with programmatic edges could not be told
  const CUresult result =
      check(driver_->cuStreamGetCaptureInfo(as(stream).handle, &info->status, &id, &graph, &nodes, &edges, &count));
  if (result != CUDA_SUCCESS || info->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
  info->id = id;
  const CudaGraphRef wrapped = wrap_graph(graph, false);
  {
    std::lock_guard lock(graphs_mutex_);
    captures_.insert(wrapped);
  }
  info->graph = wrapped;
  return wrap_nodes(wrapped, {nodes, nodes + count}, &info->dependencies);
}

CUresult CudaDevice::capture_update(const StreamRef& stream, uint32_t flags, std::span<const NodeRef> dependencies) {
  if (const CUresult result = enter(stream)) return result;
  std::vector<CUgraphNode> nodes;
  for (const NodeRef& node : dependencies) nodes.push_back(as(node).handle);
  return check(
      driver_->cuStreamUpdateCaptureDependencies(as(stream).handle, nodes.data(), nullptr, nodes.size(), flags));
}

}  // namespace bandsaw::cuda
