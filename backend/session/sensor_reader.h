// What the GPU below a virtual GPU measures, and what it reaches: read by a process of its own (`bandsaw-runner
// --sensors`), which runs while somebody asks.
//
// Threads: the event loop's only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/control/gpu_report.h"
#include "backend/sandbox/launcher.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class SensorReader {
 public:
  // `launcher` is borrowed, and outlives it.
  SensorReader(event_base* base, Launcher* launcher, std::vector<std::string> environment);
  ~SensorReader();  // ends the process
  SensorReader(const SensorReader&) = delete;

  // The last report of that GPU, with nothing known if it has no sensors. Null: none has come yet; ask again.
  const GpuReport* read(const std::string& bus_id);
  // Now and then: ends the process once nobody asks any more.
  void tick();

 private:
  using Clock = std::chrono::steady_clock;
  bool start(const std::string& bus_id);
  void receive();
  void end();

  event_base* base_;
  Launcher* const launcher_;
  std::vector<std::string> environment_;
  pid_t pid_ = 0;
  UniqueFd output_;
  EventPtr readable_;
  std::string bus_id_;  // whose the report is
  std::optional<GpuReport> report_;
  Clock::time_point asked_{}, not_before_{};
};

}  // namespace bandsaw
