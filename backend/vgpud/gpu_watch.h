// Finds out when a device can no longer be used, and when it can again.
//
// What makes a device suspect (its runners fail, the driver reports an error of the GPU) is no proof: it is asked as
// when vgpud started, by a runner of its own. If that fails too, the device is lost: its virtual GPUs end their
// programs and take no new ones, and those of other devices go on. A lost device is asked again every few seconds.
//
// Threads: the event loop's only. The asking itself, which a broken driver may hold up, has threads of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/vgpud/gpu.h"
#include "backend/vgpud/xid_watch.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class GpuWatch {
 public:
  using Changed = std::function<void(const std::string& device)>;
  // Sets `lost`, and what a device says of itself, in `gpus`; `changed` is called afterwards. `gpus` outlives this.
  GpuWatch(event_base* base, std::string runner, Gpus* gpus, Changed changed);
  ~GpuWatch();  // waits for who is being asked, kAskTimeout at most
  GpuWatch(const GpuWatch&) = delete;

  // Asks the device soon, unless it has just been asked.
  void suspect(const std::string& device, const std::string& why);

  static constexpr std::chrono::milliseconds kAskTimeout{10000}, kPause{5000}, kLongestPause{300000};

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    GpuWatch* watch = nullptr;
    Gpu* gpu = nullptr;
    std::thread asking;
    std::unique_ptr<XidWatch> errors{};  // of a GPU that is not lost
    EventPtr timer{};
    Clock::time_point not_before{};
    std::chrono::milliseconds pause = kPause;  // after answers that found nothing wrong; longer each time
  };
  struct Answer {
    size_t watched = 0;
    Status status;
    PhysicalDevice device;
  };

  void watch_errors(Watched* watched);
  void ask(Watched* watched);
  void ask_later(Watched* watched);
  void take_answers();
  void answered(Watched* watched, const Answer& answer);
  Status is_another(const PhysicalDevice& found) const;

  event_base* base_;
  const std::string runner_;
  Gpus* gpus_;
  Changed changed_;
  std::vector<Watched> watched_;  // one for each of gpus_
  UniqueFd answer_event_;
  EventPtr answer_watch_;
  std::mutex mutex_;  // guards answers_
  std::vector<Answer> answers_;
};

}  // namespace bandsaw
