#include "backend/session/sleep_watch.h"

#include <algorithm>
#include <utility>

namespace bandsaw {
namespace {

// There may be room for it later.
constexpr std::chrono::milliseconds kSayAgain{10000};

}  // namespace

SleepWatch::SleepWatch(event_base* base, Session session) : session_(std::move(session)) {
  event_.reset(event_new(
      base, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<SleepWatch*>(self)->look(); }, this));
}

void SleepWatch::set_after(std::chrono::milliseconds after) {
  if (after == std::exchange(after_, after)) return;
  timer_.set_after(after);
  begin();
}

void SleepWatch::called() {
  ++calls_;
  would_sleep_ = false;
}

void SleepWatch::note(IdleTimer::Time now) {
  const Activity activity = session_.activity();
  timer_.note(now, activity.calls + calls_, activity.under_way);
}

bool SleepWatch::idle() {
  const auto now = std::chrono::steady_clock::now();
  note(now);
  return timer_.idle(now);
}

void SleepWatch::begin() {
  would_sleep_ = false;
  event_del(event_.get());
  if (!timer_.wanted()) return;
  timer_.begin(std::chrono::steady_clock::now());
  const timeval period = to_timeval(timer_.period());
  event_add(event_.get(), &period);
}

// Nobody looks while it is asleep or suspended: begin() comes after that.
void SleepWatch::look() {
  if (!session_.awake()) return;
  const auto now = std::chrono::steady_clock::now();
  if (!idle()) {
    would_sleep_ = false;
  } else if (!would_sleep_ || now - said_ >= std::max(after_, kSayAgain)) {
    would_sleep_ = true;
    said_ = now;
    session_.idle();
  }
  const timeval period = to_timeval(timer_.period());
  event_add(event_.get(), &period);
}

}  // namespace bandsaw
