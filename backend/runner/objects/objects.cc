#include "backend/runner/objects/objects.h"

#include "memory/base/log.h"

namespace bandsaw::runner {

StreamRef Objects::find_stream(const wire::CallContext& call, uint64_t handle) {
  if (handle > VGPU_STREAM_PER_THREAD)
    return std::static_pointer_cast<Stream>(table_.find(HandleKind::kStream, handle));
  if (!call.context) return nullptr;
  std::lock_guard lock(mutex_);
  Special& special = special_[call.context.object.get()];
  if (handle != VGPU_STREAM_PER_THREAD) {
    if (!special.legacy) special.legacy = device_->stream_legacy(call.context);
    return special.legacy;
  }
  StreamRef& stream = special.per_thread[call.ring];
  if (!stream) {
    const CUresult result = device_->stream_create(call.context, CU_STREAM_DEFAULT, 0, &stream);
    if (result != CUDA_SUCCESS)
      log::warn("a thread's default stream cannot be made: error {}", static_cast<int>(result));
  }
  return stream;
}

void Objects::note_in_graphs(uint64_t event) {
  std::lock_guard lock(mutex_);
  if (in_graphs_.size() >= kEventsMost) all_in_graphs_ = true;
  if (!all_in_graphs_) in_graphs_.insert(event);
}

bool Objects::is_in_graphs(uint64_t event) {
  if (event == 0) return false;
  std::lock_guard lock(mutex_);
  return all_in_graphs_ || in_graphs_.contains(event);
}

void Objects::forget_in_graphs(uint64_t event) {
  std::lock_guard lock(mutex_);
  in_graphs_.erase(event);
}

void Objects::forget_ring(uint32_t ring) {
  std::vector<StreamRef> gone;
  {
    std::lock_guard lock(mutex_);
    for (auto& [context, special] : special_) {
      auto stream = special.per_thread.extract(ring);
      if (!stream.empty() && stream.mapped()) gone.push_back(std::move(stream.mapped()));
    }
  }
  for (const StreamRef& stream : gone) device_->stream_destroy(stream);
}

void Objects::forget_context(const Context* context) {
  std::lock_guard lock(mutex_);
  special_.erase(context);
}

}  // namespace bandsaw::runner
