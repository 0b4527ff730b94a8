#include "backend/runner/slicing/sm_taking.h"

#include <span>
#include <utility>

#include "memory/base/clock.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

// What was read of a launch that has ended says nothing any more.
CUresult SmTaking::begin(uint64_t blocks) {
  state_->store(State::kNothing);
  taken_ = 0;
  stopped_ = 0;
  wrote_ = false;
  next_place_ = blocks;
  counter_.places().stops.fill(0);
  return counter_.clear_places(launch_.stream);
}

std::function<void(CUresult)> SmTaking::written() const {
  return [state = state_, flight = launch_.flight](CUresult result) {
    state->store(result == CUDA_SUCCESS ? State::kNothing : State::kFailed);
    flight->notify();
  };
}

void SmTaking::look(size_t wanted, uint64_t block_ns) {
  switch (state_->load()) {
    case State::kReading:
      if (counter_.stamps_are_read()) choose(wanted, block_ns);
      return;
    case State::kWriting:
      return;
    case State::kFailed:  // not tried again before the next launch
      state_->store(State::kNothing);
      next_place_ = ptx::kBlockPlaces + 1;
      return;
    case State::kNothing:
      say_told();
      if (wanted > taken_ && next_place_ <= ptx::kBlockPlaces) read();
  }
}

// Which blocks are where.
void SmTaking::read() {
  state_->store(State::kReading);
  step_ns_ = static_cast<uint64_t>(monotonic_ns());
  const CUresult result =
      counter_.read_stamps(next_place_, [state = state_, flight = launch_.flight](CUresult outcome) {
        if (outcome != CUDA_SUCCESS) state->store(State::kFailed);
        flight->notify();
      });
  if (result != CUDA_SUCCESS) state_->store(State::kFailed);
}

void SmTaking::say_told() {
  if (!std::exchange(wrote_, false)) return;
  log::debug("{}: its blocks are told {} us later", launch_.kernel->name,
             (static_cast<uint64_t>(monotonic_ns()) - step_ns_) / 1000);
}

// Blocks that were told before may not have left yet.
void SmTaking::choose(size_t wanted, uint64_t block_ns) {
  state_->store(State::kNothing);
  if (wanted <= taken_) return;
  ControlBlock::Places& places = counter_.places();
  for (size_t place = 0; place < places.stops.size(); ++place)
    if (places.stops[place] != 0) places.stamps[place] = ptx::kNoBlock;
  const SmChoice choice = choose_sms(
      std::span(places.stamps).first(next_place_),
      {.sms = wanted - taken_, .bound_ns = double(bound_ns_), .block_ns = double(block_ns), .may_drop = may_drop_});
  taken_ = wanted;  // where it is fewer, the others are what the kernel keeps
  if (choice.sms == 0) return;
  stopped_ += choice.drained + choice.dropped;
  launch_.held_up = true;
  for (size_t place = 0; place < choice.stops.size(); ++place)
    if (choice.stops[place] != 0) places.stops[place] = choice.stops[place];
  const uint64_t read_ns = std::exchange(step_ns_, static_cast<uint64_t>(monotonic_ns()));
  wrote_ = true;
  state_->store(State::kWriting);
  if (counter_.write_stops(next_place_, written()) != CUDA_SUCCESS) state_->store(State::kFailed);
  log::debug(
      "{}: leaves {} SMs, {} later than {} us; {} blocks end what they run, {} drop it; seen at {} us, chosen "
      "within {} us",
      launch_.kernel->name, choice.sms, choice.late, bound_ns_ / 1000, choice.drained, choice.dropped, read_ns / 1000,
      (step_ns_ - read_ns) / 1000);
}

uint64_t SmTaking::give_back(size_t wanted, uint32_t* first_place) {
  if (state_->load() != State::kNothing || wanted >= taken_) return 0;
  taken_ = wanted;
  const uint64_t blocks = std::exchange(stopped_, 0);
  const bool room = next_place_ + blocks <= ptx::kBlockPlaces;
  *first_place = room ? static_cast<uint32_t>(next_place_) : ptx::kBlockPlaces;
  if (room) next_place_ += blocks;
  return blocks;
}

}  // namespace bandsaw::runner
