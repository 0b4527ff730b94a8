#include "backend/device/cuda/time_slice_meter.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <utility>

namespace bandsaw::cuda {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kTelling = 1 << 20;  // bytes that tell how fast an engine copies
constexpr uint64_t kCopyNs = 1500;      // that a copy takes, however short it is
constexpr size_t kStreamsMost = 16;     // that are asked whether their work has ended
constexpr double kEventsMs = 0.00125;   // between two events with nothing between them, on an H100

// Whoever still has something of it to do holds a reference; the last one's end is the time slice's.
struct TimeSliceMeter::TimeSlice {
  TimeSlice(TimeSliceMeter* its_meter, unsigned its_engine, bool from_turn)
      : meter(its_meter), engine(its_engine), on_turn(from_turn) {}
  ~TimeSlice() { meter->finish(*this); }

  TimeSliceMeter* const meter;
  const unsigned engine;
  const bool on_turn;
  std::vector<Part> parts;  // added to while it is open
  uint64_t bytes = 0;
  std::atomic<uint64_t> held_ns{0};  // beside what the parts' events tell
  std::atomic<bool> estimated{false};
  std::atomic<bool> failed{false};
  TimeSliceDone done;
};

TimeSliceMeter::TimeSliceMeter(DriverRef driver, Completions* completions, DeviceHost* host)
    : driver_(std::move(driver)),
      completions_(completions),
      host_(host),
      events_(driver_, CU_EVENT_DEFAULT),
      turn_(driver_) {}

TimeSliceMeter::~TimeSliceMeter() {
  for (TimeSliceRef& slice : open_) slice.reset();
}

void TimeSliceMeter::begin(unsigned engine, bool on_turn) {
  auto slice = std::make_shared<TimeSlice>(this, engine, on_turn);
  std::lock_guard lock(mutex_);
  open_[engine].swap(slice);
}

void TimeSliceMeter::touch(unsigned engine, const std::shared_ptr<CudaStream>& stream, uint64_t bytes,
                           bool is_plain_copy) {
  std::lock_guard lock(mutex_);
  TimeSlice* const slice = open_[engine].get();
  if (!slice) return;
  slice->bytes += bytes;
  note_at_work(engine, stream);
  const bool known = std::any_of(slice->parts.rbegin(), slice->parts.rend(),
                                 [&](const Part& part) { return part.stream == stream && !part.end; });
  // An event behind a kernel is reached in a time slice of the compute engine, and the copy would wait for that.
  const bool can_tell = knows_speed_[engine] || bytes < kTelling;
  const bool unmeasured = slice->on_turn && is_plain_copy && engine != kCompute && can_tell;
  if (unmeasured) estimate(*slice, bytes);
  if (known) return;
  Part part{stream};
  if (unmeasured) return slice->parts.push_back(std::move(part));
  if (events_.take(stream->context, &part.start) != CUDA_SUCCESS) return;
  if (slice->on_turn && engine == kCompute && turn_.put(stream->handle) != CUDA_SUCCESS) slice->failed = true;
  if (driver_->cuEventRecordWithFlags(part.start, stream->handle, 0) != CUDA_SUCCESS) slice->failed = true;
  if (stream->handle == CU_STREAM_LEGACY) legacy_open_ = true;
  slice->parts.push_back(std::move(part));
}

// With mutex_ held. Also where the stream is known to its time slice: over() may have been true since.
void TimeSliceMeter::note_at_work(unsigned engine, const std::shared_ptr<CudaStream>& stream) {
  auto& at_work = at_work_[engine];
  const auto is_it = [&](const auto& other) { return !other.owner_before(stream) && !stream.owner_before(other); };
  if (at_work.size() <= kStreamsMost && std::ranges::none_of(at_work, is_it)) at_work.push_back(stream);
}

bool TimeSliceMeter::over(unsigned engine) {
  std::lock_guard lock(mutex_);
  auto& at_work = at_work_[engine];
  const bool all_known = at_work.size() <= kStreamsMost;
  const auto has_ended = [&](const std::weak_ptr<CudaStream>& weak) {
    const auto stream = weak.lock();
    if (!stream || stream->context->work.finished()) return true;
    const bool is_legacy = stream->handle == CU_STREAM_LEGACY;
    return all_known && (is_legacy ? stream->context->legacy : stream->work).finished();
  };
  if (!std::ranges::all_of(at_work, has_ended)) return false;
  at_work.clear();
  return true;
}

bool TimeSliceMeter::waits(unsigned engine) {
  std::lock_guard lock(mutex_);
  const TimeSlice* const slice = open_[engine].get();
  return slice && std::ranges::all_of(slice->parts, [&](const Part& part) {
           return !part.start || driver_->cuEventQuery(part.start) == CUDA_ERROR_NOT_READY;
         });
}

// With mutex_ held.
void TimeSliceMeter::close(const TimeSliceRef& slice, Part& part) {
  if (part.end) return;
  const CudaStream& stream = *part.stream;
  CUresult result = stream.context->alive ? make_current(*driver_, *stream.context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (result == CUDA_SUCCESS) result = events_.take(stream.context, &part.end);
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecordWithFlags(part.end, stream.handle, 0);
  if (result != CUDA_SUCCESS) {
    slice->failed = true;
    return;
  }
  completions_->when_reached(part.end, part.stream, [slice](CUresult outcome) {
    if (outcome != CUDA_SUCCESS) slice->failed = true;
  });
}

void TimeSliceMeter::leave(const std::shared_ptr<CudaStream>& stream) {
  close_if([&](const Part& part) { return part.stream == stream; });
}

void TimeSliceMeter::leave(const CudaContextRef& context) {
  close_if([&](const Part& part) { return part.stream->context == context; });
}

void TimeSliceMeter::close_legacy(const CudaContextRef& context) {
  bool others = false;
  close_if([&](const Part& part) {
    const bool is_legacy = part.stream->handle == CU_STREAM_LEGACY && part.start;
    const bool is_its = part.stream->context == context;
    others |= is_legacy && !is_its && !part.end;
    return is_legacy && is_its;
  });
  legacy_open_ = others;
}

template <class Matches>
void TimeSliceMeter::close_if(Matches matches) {
  std::lock_guard lock(mutex_);
  for (const TimeSliceRef& slice : open_) {
    if (!slice) continue;
    for (Part& part : slice->parts) {
      if (matches(part)) close(slice, part);
    }
  }
}

void TimeSliceMeter::end(unsigned engine, TimeSliceDone done) {
  TimeSliceRef slice;
  {
    std::lock_guard lock(mutex_);
    slice.swap(open_[engine]);
    if (slice) {
      slice->done = std::move(done);
      for (Part& part : slice->parts) close(slice, part);
    }
  }
  if (!slice) done(0);
}

void TimeSliceMeter::estimate(unsigned engine, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  TimeSlice* const slice = open_[engine].get();
  if (!slice) return;
  slice->bytes += bytes;
  estimate(*slice, bytes);
}

void TimeSliceMeter::estimate(TimeSlice& slice, uint64_t bytes) const {
  const auto speed = static_cast<double>(speed_[slice.engine]);
  slice.held_ns += kCopyNs + static_cast<uint64_t>(1000.0 * static_cast<double>(bytes) / speed);
  slice.estimated = true;
}

std::shared_ptr<void> TimeSliceMeter::hold(unsigned engine, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const TimeSliceRef slice = open_[engine];
  if (!slice) return nullptr;
  slice->bytes += bytes;
  return {nullptr, [slice, since = Clock::now()](void*) { slice->held_ns += (Clock::now() - since).count(); }};
}

double CoveredTime::cover(double start, double end) {
  if (!(end > start)) return 0;
  double fresh = end - start;
  std::pair whole(start, end);
  std::erase_if(spans_, [&](const auto& span) {
    if (span.second < start || span.first > end) return false;
    fresh -= std::min(end, span.second) - std::max(start, span.first);
    whole = {std::min(whole.first, span.first), std::max(whole.second, span.second)};
    return true;
  });
  spans_.insert(std::upper_bound(spans_.begin(), spans_.end(), whole), whole);
  if (spans_.size() > kMost) spans_.erase(spans_.begin());
  return fresh;
}

void CoveredTime::shift(double by) {
  for (auto& [start, end] : spans_) start -= by, end -= by;
}

// Milliseconds in which at least one stream of the context was at it, that are counted from now on; all the parts'
// events have been reached. The first one's start is what times are measured from until the next time slice.
double TimeSliceMeter::busy_ms(const CudaContextRef& context, std::vector<Part>& parts, unsigned engine) {
  Counted& counted = counted_[{engine, context->id}];
  counted.context = context;
  Part* first = nullptr;
  double busy = 0;
  for (Part& part : parts) {
    if (part.stream->context != context || !part.start) continue;
    float start = 0, length = 0;
    if (!first) {
      first = &part;
      float later = 0;
      const bool known =
          counted.origin && driver_->cuEventElapsedTime(&later, counted.origin, part.start) == CUDA_SUCCESS;
      if (known) {
        counted.time.shift(later);
      } else {
        counted.time = {};
      }
    } else if (driver_->cuEventElapsedTime(&start, first->start, part.start) != CUDA_SUCCESS) {
      continue;
    }
    if (driver_->cuEventElapsedTime(&length, part.start, part.end) != CUDA_SUCCESS) continue;
    const double fresh = counted.time.cover(start, static_cast<double>(start) + static_cast<double>(length));
    busy += std::max(0.0, fresh - kEventsMs);
  }
  if (first) std::swap(counted.origin, first->start);
  return busy;
}

// Contexts take turns on the GPU, and have no clock in common.
uint64_t TimeSliceMeter::busy_ns(TimeSlice& slice) {
  std::set<CudaContextRef> contexts;
  for (const Part& part : slice.parts) {
    if (part.start && part.stream->context->alive)
      contexts.insert(part.stream->context);  // else its events went with it
  }
  if (contexts.empty()) return 0;
  double busy = 0;
  std::lock_guard lock(counted_mutex_);
  std::erase_if(counted_, [](const auto& entry) { return !entry.second.context->alive; });
  for (const CudaContextRef& context : contexts) busy += busy_ms(context, slice.parts, slice.engine);
  return std::max<uint64_t>(1, static_cast<uint64_t>(busy * 1e6));
}

void TimeSliceMeter::finish(TimeSlice& slice) {
  const uint64_t measured = slice.failed ? 0 : busy_ns(slice), busy = measured + slice.held_ns;
  if (slice.bytes >= kTelling && measured != 0 && !slice.estimated) {
    speed_[slice.engine] = std::max<uint64_t>(
        1, static_cast<uint64_t>(1000.0 * static_cast<double>(slice.bytes) / static_cast<double>(busy)));
    knows_speed_[slice.engine] = true;
  }
  for (const Part& part : slice.parts) {
    for (const CUevent event : {part.start, part.end}) {
      if (event) events_.give(part.stream->context, event);
    }
  }
  const uint64_t charged = slice.done ? slice.done(busy) : busy;
  host_->charge_time(static_cast<int>(slice.engine), charged, slice.bytes);
}

}  // namespace bandsaw::cuda
