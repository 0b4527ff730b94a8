#include "backend/runner/slicing/stream_timer.h"

namespace bandsaw::runner {
namespace {

constexpr std::chrono::microseconds kPause{50};  // between two probes: asking a GPU's driver takes about one

}  // namespace

bool StreamTimer::begin(const ContextRef& context, const StreamRef& stream, Span* span) {
  if (open_ + waiting_.size() >= kMost) return false;
  if (device_->event_create(context, CU_EVENT_DEFAULT, &span->start) != CUDA_SUCCESS) return false;
  if (device_->event_record(span->start, stream, 0) != CUDA_SUCCESS) return false;
  ++open_;
  return true;
}

void StreamTimer::end(const ContextRef& context, const StreamRef& stream, Span span, Measured measured) {
  if (!span.start) return;
  --open_;
  Waiting waiting{std::move(span.start), nullptr, std::move(measured)};
  if (device_->event_create(context, CU_EVENT_DEFAULT, &waiting.end) != CUDA_SUCCESS) return;
  if (device_->event_record(waiting.end, stream, 0) != CUDA_SUCCESS) return;
  waiting_.push_back(std::move(waiting));
}

void StreamTimer::probe() {
  if (waiting_.empty()) return;
  const auto now = clock_.now();
  if (now < next_probe_) return;
  next_probe_ = now + kPause;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const CUresult state = device_->event_query(it->end);
    if (state == CUDA_ERROR_NOT_READY) {
      ++it;
      continue;
    }
    float milliseconds = 0;
    if (state == CUDA_SUCCESS && device_->event_elapsed(it->start, it->end, &milliseconds) == CUDA_SUCCESS) {
      it->measured(static_cast<uint64_t>(milliseconds * 1e6f));
    }
    it = waiting_.erase(it);
  }
}

}  // namespace bandsaw::runner
