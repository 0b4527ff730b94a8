#include "backend/runner/standstill.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace bandsaw::runner {
namespace {

constexpr std::chrono::milliseconds kFirstHold{250}, kGiveWay{20};

}  // namespace

void Standstill::begin(std::chrono::milliseconds timeout, Done done, bool if_idle) {
  std::lock_guard lock(mutex_);
  done_ = std::move(done);
  timeout_ = timeout;
  if_idle_ = if_idle;
  turn_.fetch_add(1, std::memory_order_relaxed);
  wanted_.store(true, std::memory_order_release);
}

void Standstill::end() {
  wanted_.store(false, std::memory_order_release);
  answer(ECANCELED);
}

void Standstill::answer(int error) {
  std::unique_lock lock(mutex_);
  const Done done = std::exchange(done_, nullptr);
  lock.unlock();
  if (done) done(error);
}

// What puts no work on the device goes on: others of the program's threads may wait for it, and so may its work.
bool Standstill::admits(const wire::CheckedRecord& record) const {
  const Stage stage = stage_.load(std::memory_order_relaxed);
  if (stage == Stage::kNone || stage == Stage::kPausing) return true;
  using wire::Order;
  return stage != Stage::kRest && !record.info->engine && record.info->order != Order::kStream &&
         record.info->order != Order::kGraph;
}

void Standstill::issued(const wire::CheckedRecord& record) {
  ++seen_;
  if (record.info->engine || record.info->order == wire::Order::kStream) ++issued_;
}

void Standstill::hold(Clock::Point now) {
  stage_ = Stage::kHolding;
  held_since_ = now;
  hold_for_ = std::min<std::chrono::nanoseconds>(hold_for_, begun_ + timeout_ - now);
}

void Standstill::settle() {
  stage_ = Stage::kSettling;
  issued_before_ = issued_;
  settled_ = std::make_shared<std::atomic<bool>>(false);
  device_->settle([settled = settled_](CUresult) { settled->store(true, std::memory_order_release); });
}

// Work has not ended while records were held back.
bool Standstill::give_way(Clock::Point now) {
  if (now - begun_ < timeout_) {
    stage_ = Stage::kPausing;
    paused_until_ = now + kGiveWay;
    hold_for_ *= 2;
    return true;
  }
  give_up();
  return true;
}

void Standstill::give_up() {
  wanted_.store(false, std::memory_order_release);
  stage_ = Stage::kNone;
  answer(EBUSY);
}

bool Standstill::advance(bool busy, bool waits) {
  Stage stage = stage_.load(std::memory_order_relaxed);
  if (!wanted()) {
    stage_ = Stage::kNone;
    return stage != Stage::kNone;
  }
  if (const uint32_t turn = turn_.load(std::memory_order_relaxed); turn != turn_begun_) {
    turn_begun_ = turn;
    stage = Stage::kNone;  // the last one ended, and nobody looked since
  }
  const Clock::Point now = clock_.now();
  if (stage == Stage::kRest) return false;
  if (stage != Stage::kNone && if_idle_ && (waits || seen_ != seen_before_)) {
    give_up();
    return true;
  }
  if (stage == Stage::kNone) {
    begun_ = now;
    seen_before_ = seen_;
    hold_for_ = kFirstHold;
    hold(now);
  } else if (stage == Stage::kPausing) {
    if (now < paused_until_) return false;
    hold(now);
  } else if (stage == Stage::kHolding) {
    gate_.pause();
    // What was asked for at gates is given back: nobody is to wait for this process meanwhile.
    if (!busy && !gate_.settle()) settle();
  } else if (settled_->load(std::memory_order_acquire)) {
    if (issued_ == issued_before_ && !busy) {
      stage_.store(Stage::kRest, std::memory_order_release);
      answer(0);
      return false;
    }
    stage_ = Stage::kHolding;  // something came meanwhile that needs no gate
  }
  return now - held_since_ >= hold_for_ && give_way(now);
}

}  // namespace bandsaw::runner
