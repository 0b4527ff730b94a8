// The software device's timing mode: what some warps of each kernel's first launches do goes to files, which the timing
// model replays (timing/README.md). A file for each launch; memory and files are bounded whatever kernels do.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/device/soft/timing/trace.h"
#include "backend/device/soft/warp_recording.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::soft {

// One launch. Thread-safe.
class LaunchRecording {
 public:
  // `launch` without warps.
  LaunchRecording(UniqueFd file, const timing::LaunchTrace& launch);
  // Warps that have not ended are written as far as they came.
  ~LaunchRecording();
  LaunchRecording(const LaunchRecording&) = delete;
  LaunchRecording& operator=(const LaunchRecording&) = delete;

  // nullptr: this warp is not recorded.
  WarpRecording* begin_warp(uint64_t block, uint32_t warp);
  void end_warp(WarpRecording* recording);  // may be nullptr

 private:
  static void write_full(WarpRecording* recording);
  bool put(const std::string& data);
  void write(const timing::WarpTrace& warp);

  const UniqueFd file_;
  const uint32_t block_warps_;
  const timing::Part part_;
  const uint64_t blocks_;  // that are recorded: the first ones of the part
  size_t words_most_;      // of a warp
  std::mutex mutex_;
  std::map<WarpRecording*, std::unique_ptr<WarpRecording>> running_;  // guarded by mutex_, as the next
  bool failed_ = false;                                               // the disk is full
};

// Chooses which launches are recorded. Thread-safe.
class Recorder {
 public:
  // Of each kernel the first `launches`, in files of a folder that this makes: blocks of `part`.
  Recorder(std::string folder, uint32_t launches, timing::Part part);
  // nullptr: this launch is not recorded. `launch` without warps, its own number and part.
  std::shared_ptr<LaunchRecording> begin(timing::LaunchTrace launch);

 private:
  const std::string folder_;
  const uint32_t launches_;
  const timing::Part part_;
  std::mutex mutex_;
  std::map<std::string, uint32_t> seen_;  // launches by kernel; guarded by mutex_, as the next
  uint32_t files_ = 0;
};

}  // namespace bandsaw::soft
