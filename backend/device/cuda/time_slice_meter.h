// How long the GPU works on the time slices of a process: in each stream that a time slice touches, an event before its
// first and one after its last work; the time slice's time is that in which at least one of its streams was between the
// two, less what has been counted to time slices that ran beside it and ended before.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/device/cuda/completions.h"
#include "backend/device/cuda/event_pool.h"
#include "backend/device/cuda/turn_kernel.h"
#include "backend/device/device.h"

namespace bandsaw::cuda {

// Which times have been counted; as long ago as matters.
class CoveredTime {
 public:
  // How much of it has not been counted before. Now it has.
  double cover(double start, double end);
  // All times are `by` less from now on.
  void shift(double by);

 private:
  static constexpr size_t kMost = 64;
  std::vector<std::pair<double, double>> spans_;  // in order, apart
};

// Thread-safe. Outlives every time slice it has begun.
class TimeSliceMeter {
 public:
  // `host` is charged each time slice's time and bytes.
  TimeSliceMeter(DriverRef driver, Completions* completions, DeviceHost* host);
  ~TimeSliceMeter();

  // `on_turn`: as Device::time_slice_begin().
  void begin(unsigned engine, bool on_turn);
  void end(unsigned engine, TimeSliceDone done);
  // Before work for the engine is put on a stream that does not capture, and whose context is current.
  // `is_plain_copy`: bytes in one piece each, so that one may know how long they take.
  void touch(unsigned engine, const std::shared_ptr<CudaStream>& stream, uint64_t bytes, bool is_plain_copy);
  // Nothing of the open time slice has begun.
  bool waits(unsigned engine);
  // The program has seen the ends of all that was put on streams for the engine. The completions' thread sees them too,
  // but a program that launches again at once is sooner.
  bool over(unsigned engine);
  // Before a stream, or a context with its streams, is destroyed or may capture: nothing can be measured there then.
  void leave(const std::shared_ptr<CudaStream>& stream);
  void leave(const CudaContextRef& context);
  // Before something is put on a stream that the legacy one waits for: an event behind the legacy stream's work that
  // came later would wait for that, and have work of other streams wait as well.
  void leave_legacy(const CudaContextRef& context) {
    if (legacy_open_.load(std::memory_order_relaxed)) close_legacy(context);
  }
  // For copies in a graph, whose ends nobody tells: the open time slice is charged what so many bytes take as a rule.
  void estimate(unsigned engine, uint64_t bytes);
  // For work that another thread will wait for: the time slice lasts until this is let go, and is charged for so long.
  std::shared_ptr<void> hold(unsigned engine, uint64_t bytes);

 private:
  struct Part {
    std::shared_ptr<CudaStream> stream;
    CUevent start = nullptr, end = nullptr;  // no start: what it takes is estimated
  };
  struct TimeSlice;
  using TimeSliceRef = std::shared_ptr<TimeSlice>;

  void note_at_work(unsigned engine, const std::shared_ptr<CudaStream>& stream);
  void close(const TimeSliceRef& slice, Part& part);
  void close_legacy(const CudaContextRef& context);
  template <class Matches>
  void close_if(Matches matches);
  void estimate(TimeSlice& slice, uint64_t bytes) const;
  double busy_ms(const CudaContextRef& context, std::vector<Part>& parts, unsigned engine);
  uint64_t busy_ns(TimeSlice& slice);
  void finish(TimeSlice& slice);

  const DriverRef driver_;
  Completions* const completions_;
  DeviceHost* const host_;
  EventPool events_;
  TurnKernel turn_;
  // Bytes in a microsecond of each engine, as measured last. At first as if a link moved 16 GB/s.
  std::array<std::atomic<uint64_t>, kEngines> speed_{16000, 16000, 16000};
  std::array<std::atomic<bool>, kEngines> knows_speed_{};
  std::mutex mutex_;
  std::array<TimeSliceRef, kEngines> open_;  // guarded by mutex_
  std::atomic<bool> legacy_open_{false};     // some of them may have work on a legacy stream whose end is not marked
  // Streams that had work since over() was true. Guarded by mutex_.
  std::array<std::vector<std::weak_ptr<CudaStream>>, kEngines> at_work_;

  // What has been counted, in milliseconds after an event that is kept for it.
  struct Counted {
    CudaContextRef context;
    CUevent origin = nullptr;
    CoveredTime time;
  };
  std::mutex counted_mutex_;
  std::map<std::pair<unsigned, uint64_t>, Counted> counted_;  // guarded by counted_mutex_; by engine and context's id
};

}  // namespace bandsaw::cuda
