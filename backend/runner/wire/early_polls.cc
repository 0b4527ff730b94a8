#include "backend/runner/wire/early_polls.h"

#include <pthread.h>

#include <chrono>
#include <utility>

namespace bandsaw::runner {
namespace {

// While a host function runs, which seldom takes this long, the rings are looked at so often.
constexpr std::chrono::microseconds kNap{500};

}  // namespace

EarlyPolls::EarlyPolls(CallbackQueue* callbacks, DeviceSection* section, std::function<void()> take)
    : callbacks_(callbacks), section_(section), take_(std::move(take)), thread_([this] { run(); }) {}

EarlyPolls::~EarlyPolls() {
  stop_ = true;
  callbacks_->wake();
  thread_.join();
}

void EarlyPolls::run() {
  pthread_setname_np(pthread_self(), "early-polls");
  while (!stop_) {
    callbacks_->await_running(stop_);
    std::this_thread::sleep_for(kNap);
    section_->act_within(take_);
  }
}

}  // namespace bandsaw::runner
