#include "backend/runner/wire/early_polls.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace bandsaw::runner {
namespace {

// How long it naps between two looks at the rings while a host function runs. Where one has been taken, others are
// likely to follow: a program that is far ahead of the device has one after the other end in this way.
constexpr std::chrono::microseconds kNapLeast{10}, kNapMost{500};

}  // namespace

EarlyPolls::EarlyPolls(CallbackQueue* callbacks, DeviceSection* section, std::function<bool()> take)
    : callbacks_(callbacks), section_(section), take_(std::move(take)), thread_([this] { run(); }) {}

EarlyPolls::~EarlyPolls() {
  stop_ = true;
  callbacks_->wake();
  thread_.join();
}

void EarlyPolls::run() {
  pthread_setname_np(pthread_self(), "early-polls");
  prctl(PR_SET_TIMERSLACK, 1'000, 0, 0, 0);  // ns
  auto nap = kNapMost;
  while (!stop_) {
    callbacks_->await_running(stop_);
    std::this_thread::sleep_for(nap);
    bool taken = false;
    section_->act_within([&] { taken = take_(); });
    nap = taken ? kNapLeast : std::min(2 * nap, kNapMost);
  }
}

}  // namespace bandsaw::runner
