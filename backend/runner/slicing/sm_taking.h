// Frees single SMs of a launch of persistent blocks while the others run on: reads where the blocks are and since when,
// chooses (sm_choice.h), tells those that are to stop. For the record loop's thread; the device's threads write what
// has ended.
#pragma once

#include <atomic>
#include <memory>

#include "backend/runner/slicing/claim_counter.h"
#include "backend/runner/slicing/launch_under_way.h"
#include "backend/runner/slicing/sm_choice.h"

namespace bandsaw::runner {

class SmTaking {
 public:
  // Both outlive this. `bound_ns`: within which SMs are to be free.
  SmTaking(ClaimCounter* counter, LaunchUnderWay* launch, uint64_t bound_ns, bool may_drop)
      : counter_(*counter), launch_(*launch), bound_ns_(bound_ns), may_drop_(may_drop) {}

  // So many blocks are about to be launched on the launch's stream, and nobody else runs.
  CUresult begin(uint64_t blocks);
  // So many SMs are to be free. Goes on by one step; to be called again when one has ended.
  void look(size_t wanted, uint64_t block_ns);
  // Those that are free now and are to be free no longer: so many blocks are to be launched in their place, beside
  // those that run, from `*first_place` on; that is kBlockPlaces if there are none left. 0: nothing is to be done.
  uint64_t give_back(size_t wanted, uint32_t* first_place);

  // The device reads or writes the places.
  bool is_under_way() const {
    const State state = state_->load();
    return state == State::kWriting || (state == State::kReading && !counter_.stamps_are_read());
  }
  size_t taken() const { return taken_; }

 private:
  enum class State : uint8_t { kNothing, kReading, kWriting, kFailed };

  void read();
  void choose(size_t wanted, uint64_t block_ns);
  void say_told();
  std::function<void(CUresult)> written() const;

  ClaimCounter& counter_;
  LaunchUnderWay& launch_;
  const uint64_t bound_ns_;
  const bool may_drop_;
  const std::shared_ptr<std::atomic<State>> state_ = std::make_shared<std::atomic<State>>(State::kNothing);
  uint64_t step_ns_ = 0;     // when the device was last asked to read or write
  bool wrote_ = false;       // that it has, nobody has said yet
  size_t taken_ = 0;         // SMs
  uint64_t stopped_ = 0;     // blocks that were on them
  uint64_t next_place_ = 0;  // of the launches with these places
};

}  // namespace bandsaw::runner
