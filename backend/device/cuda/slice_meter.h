// How long the GPU works on the slices of a process: in each stream that a slice touches, an event before its first and
// one after its last work; the slice's time is that in which at least one of its streams was between the two, less
// what has been counted to slices that ran beside it and ended before.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/device/cuda/completions.h"
#include "backend/device/cuda/event_pool.h"
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

// Thread-safe. Outlives every slice it has begun.
class SliceMeter {
 public:
  // `host` is charged each slice's time and bytes.
  SliceMeter(DriverRef driver, Completions* completions, DeviceHost* host);
  ~SliceMeter();

  void begin(unsigned engine);
  void end(unsigned engine, SliceDone done);
  // Before work for the engine is put on a stream that does not capture, and whose context is current.
  void touch(unsigned engine, const std::shared_ptr<CudaStream>& stream, uint64_t bytes);
  // Before a stream, or a context with its streams, is destroyed or may capture: nothing can be measured there then.
  void leave(const std::shared_ptr<CudaStream>& stream);
  void leave(const CudaContextRef& context);
  // For work that another thread will wait for: the slice lasts until this is let go, and is charged for so long.
  std::shared_ptr<void> hold(unsigned engine, uint64_t bytes);

 private:
  struct Part {
    std::shared_ptr<CudaStream> stream;
    CUevent start = nullptr, end = nullptr;
  };
  struct Slice;
  using SliceRef = std::shared_ptr<Slice>;

  void close(const SliceRef& slice, Part& part);
  template <class Matches>
  void close_if(Matches matches);
  double busy_ms(const CudaContextRef& context, std::vector<Part>& parts, unsigned engine);
  uint64_t busy_ns(Slice& slice);
  void finish(Slice& slice);

  const DriverRef driver_;
  Completions* const completions_;
  DeviceHost* const host_;
  EventPool events_;
  std::mutex mutex_;
  std::array<SliceRef, kEngineCount> open_;  // guarded by mutex_

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
