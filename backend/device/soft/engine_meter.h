// What the device's engines were busy with, measured: each moment in which an engine works is counted once, however
// many operations run in it, and belongs to the time slice of the operation that ends next.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backend/device/device.h"

namespace bandsaw::soft {

// What was put on an engine between time_slice_begin and time_slice_end. Ends when the last operation of it lets it go.
struct MeteredTimeSlice {
  ~MeteredTimeSlice() {
    if (done) done(busy_ns.load());
  }
  std::atomic<uint64_t> busy_ns{0};
  TimeSliceDone done;
};

class EngineMeter {
 public:
  void begin();
  // Nanoseconds in which the engine worked since the last end, or since it began to.
  uint64_t end();

 private:
  std::mutex mutex_;
  uint32_t working_ = 0;
  int64_t since_ = 0;
};

// An operation's part in it. Thread-safe in the order begin, end; release at any time after the last of them.
class EngineWork {
 public:
  EngineWork() = default;
  EngineWork(EngineMeter* meter, std::shared_ptr<MeteredTimeSlice> slice)
      : meter_(meter), time_slice_(std::move(slice)) {}
  void begin() { meter_->begin(); }
  uint64_t end();
  // The operation will not be run.
  void release() { time_slice_.reset(); }

 private:
  EngineMeter* meter_ = nullptr;
  std::shared_ptr<MeteredTimeSlice> time_slice_;
};

class EngineMeters {
 public:
  void time_slice_begin(unsigned engine);
  void time_slice_end(unsigned engine, TimeSliceDone done);
  // For an operation made now. Copies in a graph that was put on the compute engine are part of the graph's time slice.
  EngineWork work(unsigned engine);

 private:
  std::array<EngineMeter, kEngines> meters_;
  std::mutex mutex_;
  std::array<std::shared_ptr<MeteredTimeSlice>, kEngines> time_slices_;  // guarded by mutex_
};

}  // namespace bandsaw::soft
