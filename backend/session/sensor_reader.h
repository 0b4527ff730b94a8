// What the GPU below a virtual GPU measures: read by a process of its own (`bandsaw-runner --sensors`), which runs
// while somebody asks.
//
// Threads: the event loop's only.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/sandbox/launcher.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class SensorReader {
 public:
  // `launcher` is borrowed, and outlives it.
  SensorReader(event_base* base, Launcher* launcher, std::vector<std::string> environment);
  ~SensorReader();  // ends the process
  SensorReader(const SensorReader&) = delete;

  // The last values of that GPU, none known if it has no sensors. Null: none have come yet; ask again.
  const vgpu_answer_sensors* read(const std::string& bus_id);
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
  std::string bus_id_;  // whose the values are
  std::optional<vgpu_answer_sensors> values_;
  Clock::time_point asked_{}, not_before_{};
};

}  // namespace bandsaw
