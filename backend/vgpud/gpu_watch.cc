#include "backend/vgpud/gpu_watch.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "memory/base/eventfd.h"
#include "memory/base/log_about.h"

namespace bandsaw {

GpuWatch::GpuWatch(event_base* base, std::string runner, Gpus* gpus, Changed changed)
    : base_(base),
      runner_(std::move(runner)),
      gpus_(gpus),
      changed_(std::move(changed)),
      watched_(gpus->all().size()),
      answer_event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  answer_watch_.reset(event_new(
      base, answer_event_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<GpuWatch*>(self)->take_answers(); }, this));
  event_add(answer_watch_.get(), nullptr);
  for (size_t i = 0; i < watched_.size(); ++i) {
    Watched& watched = watched_[i];
    watched.watch = this;
    watched.gpu = &gpus_->all()[i];
    watched.timer.reset(event_new(
        base, -1, EV_TIMEOUT,
        [](evutil_socket_t, short, void* one) {
          auto* due = static_cast<Watched*>(one);
          due->watch->ask(due);
        },
        &watched));
    if (!watched.gpu->device.lost.empty()) ask_later(&watched);
    watch_errors(&watched);
  }
}

GpuWatch::~GpuWatch() {
  for (Watched& watched : watched_) {
    if (watched.asking.joinable()) watched.asking.join();
  }
}

void GpuWatch::watch_errors(Watched* watched) {
  const PhysicalDevice& device = watched->gpu->device;
  watched->errors.reset();
  if (device.visible.empty() || !device.lost.empty()) return;
  watched->errors = std::make_unique<XidWatch>(
      base_, runner_, device.visible, [this, name = device.name](const std::string& why) { suspect(name, why); });
}

void GpuWatch::suspect(const std::string& device, const std::string& why) {
  for (Watched& watched : watched_) {
    const PhysicalDevice& known = watched.gpu->device;
    if (known.name != device || !known.lost.empty() || watched.asking.joinable()) continue;
    if (Clock::now() < watched.not_before) return;
    log::warn(log::About{.device = device}, "device '{}' is asked whether it can be used: {}", device, why);
    ask(&watched);
  }
}

void GpuWatch::ask(Watched* watched) {
  if (watched->asking.joinable()) return;
  const auto index = static_cast<size_t>(watched - watched_.data());
  watched->asking = std::thread([this, index, device = watched->gpu->device]() mutable {
    Status status = find_again(runner_, kAskTimeout, &device);
    {
      const std::lock_guard lock(mutex_);
      answers_.push_back({index, std::move(status), std::move(device)});
    }
    signal_event(answer_event_.get());
  });
}

void GpuWatch::ask_later(Watched* watched) {
  const timeval pause = to_timeval(kPause);
  event_add(watched->timer.get(), &pause);
}

void GpuWatch::take_answers() {
  drain_event(answer_event_.get());
  std::vector<Answer> answers;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(answers_);
  }
  for (const Answer& answer : answers) {
    Watched& watched = watched_[answer.watched];
    watched.asking.join();  // it has nothing left to do
    answered(&watched, answer);
  }
}

// A number that was nobody's when vgpud started may have become that of a GPU which is served already.
Status GpuWatch::is_another(const PhysicalDevice& found) const {
  for (const Gpu& gpu : gpus_->all()) {
    if (gpu.device.name == found.name || found.visible.empty() || gpu.device.visible != found.visible) continue;
    return Status::error(ENODEV, "its number is that of '{}' now ({})", gpu.device.name, found.visible);
  }
  return {};
}

void GpuWatch::answered(Watched* watched, const Answer& answer) {
  PhysicalDevice& device = watched->gpu->device;
  Status status = answer.status;
  if (status.ok()) status = is_another(answer.device);
  const bool was_lost = !device.lost.empty();
  if (!status.ok()) {
    device.lost = status.message();
    ask_later(watched);
    if (was_lost) return;
    watch_errors(watched);
    log::error(log::About{.device = device.name}, "device '{}' is lost, and the programs of its virtual GPUs end: {}",
               device.name, device.lost);
    return changed_(device.name);
  }
  if (was_lost) {
    device = answer.device;
    watched->pause = kPause;
    watch_errors(watched);
    log::info(log::About{.device = device.name}, "device '{}' ({}) can be used again", device.name, device.model);
    return changed_(device.name);
  }
  log::info(log::About{.device = device.name}, "device '{}' answers: what is wrong is not the device", device.name);
  watched->not_before = Clock::now() + watched->pause;
  watched->pause = std::min(kLongestPause, watched->pause * 2);
}

}  // namespace bandsaw
