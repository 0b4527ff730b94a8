#include "backend/device/soft/recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backend/device/soft/write_all.h"
#include "memory/base/log.h"

namespace bandsaw::soft {
namespace {

// More than any GPU of the model has at once on the part of its SMs that is simulated.
constexpr uint32_t kWarpsMost = 1024;
constexpr size_t kLaunchBytes = 64 << 20;
constexpr uint32_t kFilesMost = 64;  // of a process: with all of them full 4 GiB
constexpr size_t kKernelsMost = 4096;

}  // namespace

LaunchRecording::LaunchRecording(UniqueFd file, const timing::LaunchTrace& launch)
    : file_(std::move(file)),
      block_warps_(launch.block_warps()),
      part_(launch.part),
      blocks_(std::min<uint64_t>(part_.blocks_of(launch.blocks()), std::max(1u, kWarpsMost / launch.block_warps()))),
      words_most_(kLaunchBytes / sizeof(uint32_t) / (blocks_ * block_warps_)) {
  failed_ = !put(timing::encode_head(launch));
}

LaunchRecording::~LaunchRecording() {
  for (auto& [key, recording] : running_) {
    recording->trace.cut = true;
    write(recording->trace);
  }
}

WarpRecording* LaunchRecording::begin_warp(uint64_t block, uint32_t warp) {
  const uint64_t place = part_.blocks_of(block);
  if (!part_.has(block) || place >= blocks_) return nullptr;
  auto made = std::make_unique<WarpRecording>();
  made->trace.block = block;
  made->trace.warp = warp;
  made->most = words_most_;
  made->local_index = static_cast<uint32_t>(place) * block_warps_ + warp;
  made->of = this;
  made->full = &write_full;
  std::lock_guard lock(mutex_);
  WarpRecording* const key = made.get();
  running_[key] = std::move(made);
  return key;
}

void LaunchRecording::end_warp(WarpRecording* recording) {
  if (!recording) return;
  std::lock_guard lock(mutex_);
  const auto found = running_.find(recording);
  if (found == running_.end()) return;
  if (!recording->trace.cut) write(recording->trace);  // a full one is written
  running_.erase(found);
}

// It is written at once: its kernel may never end.
void LaunchRecording::write_full(WarpRecording* recording) {
  auto& self = *static_cast<LaunchRecording*>(recording->of);
  std::lock_guard lock(self.mutex_);
  self.write(recording->trace);
  recording->trace.words = {};
}

bool LaunchRecording::put(const std::string& data) { return write_all(file_.get(), data.data(), data.size()); }

void LaunchRecording::write(const timing::WarpTrace& warp) {
  if (warp.cut && warp.words.empty()) return;
  if (!failed_ && put(timing::encode_warp(warp))) return;
  if (!std::exchange(failed_, true)) log::warn("timing: the trace of a launch cannot be written");
}

Recorder::Recorder(std::string folder, uint32_t launches, timing::Part part)
    : folder_(std::move(folder)), launches_(launches), part_(part) {
  ::mkdir(folder_.c_str(), 0700);
}

std::shared_ptr<LaunchRecording> Recorder::begin(timing::LaunchTrace launch) {
  std::lock_guard lock(mutex_);
  if (files_ >= kFilesMost || (seen_.size() >= kKernelsMost && !seen_.contains(launch.kernel))) return nullptr;
  uint32_t& seen = seen_[launch.kernel];
  if (seen >= launches_) return nullptr;
  launch.launch = seen++;
  launch.part = part_;
  std::string name = folder_ + "/" + std::to_string(::getpid()) + "-XXXXXX";  // runners may have one process number
  UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) {
    log::warn("timing: no file in {}", folder_);
    return nullptr;
  }
  ++files_;
  return std::make_shared<LaunchRecording>(std::move(file), launch);
}

}  // namespace bandsaw::soft
