// Stream capture: work becomes nodes of a graph; events carry the capture from stream to stream.
#include <algorithm>

#include "backend/device/soft/graph.h"
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

namespace {

void add_dependencies(std::vector<NodeRef>* to, std::span<const NodeRef> from) {
  for (const NodeRef& node : from) {
    if (std::find(to->begin(), to->end(), node) == to->end()) to->push_back(node);
  }
}

// Every forked stream's work must lie before what the origin captured last.
bool all_joined(const Capture& capture) {
  const auto& ends = capture.origin->capture_dependencies;
  const auto is_joined = [&](const NodeRef& node) {
    return std::any_of(ends.begin(), ends.end(),
                       [&](const NodeRef& end) { return SoftGraph::reaches(&as(node), &as(end)); });
  };
  for (const auto& weak : capture.streams) {
    const auto stream = weak.lock();
    if (!stream || stream.get() == capture.origin) continue;
    if (!std::all_of(stream->capture_dependencies.begin(), stream->capture_dependencies.end(), is_joined)) return false;
  }
  return std::all_of(capture.left.begin(), capture.left.end(), is_joined);
}

void end_capture(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const auto& weak : capture->streams) {
    const auto stream = weak.lock();
    if (!stream || stream->capture != capture) continue;
    stream->capture.reset();
    stream->capture_dependencies.clear();
  }
}

}  // namespace

bool SoftDevice::capturing(SoftStream& stream) { return stream.capture != nullptr; }

// Work on the legacy default stream would wait for blocking streams; while one captures, that cannot be.
CUresult SoftDevice::check_capture(SoftStream& stream) {
  if (!stream.legacy) return CUDA_SUCCESS;
  for (const auto& capture : stream.context->captures) {
    for (const auto& weak : capture->streams) {
      const auto other = weak.lock();
      if (!other || other->capture != capture || !other->blocking()) continue;
      capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
}

// For calls that a capturing stream does not allow.
CUresult SoftDevice::refuse_in_capture(SoftStream& stream) {
  if (!stream.capture) return check_capture(stream);
  if (stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream.capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult SoftDevice::capture_node(SoftStream& stream, const NodeContent& content, uint64_t* value) {
  if (stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  NodeRef node;
  if (const CUresult refused = add_node(stream.capture->graph, stream.capture_dependencies, content, &node, value)) {
    stream.capture->invalid = true;
    return refused;
  }
  stream.capture_dependencies.assign(1, std::move(node));
  return CUDA_SUCCESS;
}

CUresult SoftDevice::capture_record(SoftStream& stream, SoftEvent& event, uint32_t flags) {
  if (stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags & CU_EVENT_RECORD_EXTERNAL) {
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    content.event = event.shared_from_this();
    return capture_node(stream, content, nullptr);
  }
  event.capture = stream.capture;
  event.capture_dependencies = stream.capture_dependencies;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::capture_wait(SoftStream& stream, SoftEvent& event, uint32_t flags) {
  if (stream.capture && stream.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.capture && (flags & CU_EVENT_WAIT_EXTERNAL)) {
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    content.event = event.shared_from_this();
    return capture_node(stream, content, nullptr);
  }
  if (!event.capture || event.capture->ended) {
    if (!stream.capture) return CUDA_ERROR_CAPTURED_EVENT;
    stream.capture->invalid = true;  // it would wait for work outside the graph
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.legacy) {
    event.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.capture_dependencies.clear();
    event.capture->streams.push_back(std::static_pointer_cast<SoftStream>(stream.shared_from_this()));
  } else if (stream.capture != event.capture) {
    stream.capture->invalid = event.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  add_dependencies(&stream.capture_dependencies, event.capture_dependencies);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::capture_begin(const StreamRef& stream, CUstreamCaptureMode mode, const GraphRef& into,
                                   std::span<const NodeRef> dependencies) {
  if (const CUresult error = scheduler_.error()) return error;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(scheduler_.mutex());
  SoftStream& origin = as(stream);
  if (origin.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (origin.capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (!into && !dependencies.empty()) return CUDA_ERROR_INVALID_VALUE;
  auto capture = std::make_shared<Capture>();
  capture->graph = into ? as(into).shared_from_this() : std::make_shared<SoftGraph>();
  for (const NodeRef& node : dependencies) {
    if (!node || as(node).graph.lock() != capture->graph) return CUDA_ERROR_INVALID_VALUE;
  }
  capture->id = next_capture_++;
  capture->mode = mode;
  capture->origin = &origin;
  capture->streams.push_back(std::static_pointer_cast<SoftStream>(stream));
  origin.capture = capture;
  origin.capture_dependencies.assign(dependencies.begin(), dependencies.end());
  origin.context->captures.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult SoftDevice::capture_end(const StreamRef& stream, GraphRef* graph) {
  graph->reset();
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  SoftStream& origin = as(stream);
  const std::shared_ptr<Capture> capture = origin.capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &origin) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  const bool joined = all_joined(*capture);
  end_capture(capture);
  std::erase(origin.context->captures, capture);
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = capture->graph;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::capture_info(const StreamRef& stream, CaptureInfo* info) {
  *info = {};
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  const SoftStream& asked = as(stream);
  if (!asked.capture) {
    for (const auto& capture : asked.context->captures) {
      if (asked.legacy && !capture->invalid && capture->origin->blocking()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return CUDA_SUCCESS;
  }
  info->status = asked.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (asked.capture->invalid) return CUDA_SUCCESS;
  info->id = asked.capture->id;
  info->graph = asked.capture->graph;
  info->dependencies = asked.capture_dependencies;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::capture_update(const StreamRef& stream, uint32_t flags, std::span<const NodeRef> dependencies) {
  if (const CUresult error = scheduler_.error()) return error;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(scheduler_.mutex());
  SoftStream& updated = as(stream);
  if (!updated.capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (updated.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  for (const NodeRef& node : dependencies) {
    if (!node || as(node).graph.lock() != updated.capture->graph) return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) updated.capture_dependencies.clear();
  add_dependencies(&updated.capture_dependencies, dependencies);
  return CUDA_SUCCESS;
}

// The stream's owner gives it up while it captures.
void SoftDevice::abandon_capture(SoftStream& stream) {
  if (!stream.capture) return;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->origin != &stream) {  // its work stays in the graph, and has to be joined as other streams' work has
    add_dependencies(&capture->left, stream.capture_dependencies);
    stream.capture.reset();
    stream.capture_dependencies.clear();
    return;
  }
  capture->invalid = true;
  end_capture(capture);
  std::erase(stream.context->captures, capture);
}

}  // namespace bandsaw::soft
