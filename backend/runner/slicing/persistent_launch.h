// A launch as persistent blocks, which claim blocks of the grid from a counter in device memory, and stop when others
// want the engine. Where they are told apart, single SMs are taken from them while the others run on. Where they are
// limited, a plan that wants another number of them is followed while they run: those above the limit of an SM leave,
// or more are launched beside them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/runner/slicing/claim_counter.h"
#include "backend/runner/slicing/clone_launch.h"
#include "backend/runner/slicing/launch_under_way.h"
#include "backend/runner/slicing/launch_variant.h"
#include "backend/runner/slicing/slicing_parts.h"
#include "backend/runner/slicing/sm_taking.h"

namespace bandsaw::runner {

class PersistentLaunch final : public LaunchVariant {
 public:
  // Null: it cannot run so, and `why_not` says why.
  static std::unique_ptr<PersistentLaunch> make(SlicingParts* parts, LaunchUnderWay* launch,
                                                std::shared_ptr<const KernelClone> clone, std::string* why_not);

  // They run until the end of the grid, or until they are told to stop: what follows on the stream waits for that.
  void look() override;
  std::chrono::nanoseconds look_again(Clock::Point now) const override;
  bool may_issue() const override;
  CUresult issue() override;
  CUresult issue_rest() override;
  bool goes_on() override;
  void give_back() override;
  void describe(KernelDescriptor* descriptor) const override;
  bool is_comparable() const override;
  const KernelClone& clone() const override { return clone_launch_.clone(); }

 private:
  PersistentLaunch(SlicingParts* parts, LaunchUnderWay* launch, std::shared_ptr<const KernelClone> clone)
      : parts_(*parts), launch_(*launch), clone_launch_(std::move(clone), launch->program) {}
  std::string why_not() const;
  uint64_t best() const;
  void take_plan();
  bool is_replanned() const;
  std::chrono::nanoseconds longest_run() const;
  bool is_watched() const { return !told_ && !drained_ && !launch_.stalled; }
  void tell_to_stop();
  bool is_test_stop(Clock::Point now) const;
  uint32_t rows() const;
  bool is_resizable() const;
  bool follows_plan();
  void resize(uint32_t limit);
  void add_beside(uint64_t blocks);
  bool has_begun() const;
  uint32_t wanted_sms() const;
  void leave_sms();
  bool drops() const;
  void watch_end(Clock::Point now);
  void take_probe(Clock::Point now);

  SlicingParts& parts_;
  LaunchUnderWay& launch_;
  CloneLaunch clone_launch_;
  std::optional<ClaimCounter> counter_;  // from make() on
  std::optional<SmTaking> taking_;       // of a clone whose blocks are told apart
  int gives_ = 0;                        // how often SMs were given back
  uint64_t most_resident_ = 0;           // blocks that fit on an SM
  uint64_t blocks_ = 1;                  // persistent blocks of the next launch
  bool granted_ = false;                 // a plan has said how many
  uint32_t resident_ = 0;                // on each SM, as the plan said; 0: as many as are best for it alone
  uint32_t limit_ = 0;                   // blocks on each SM, of those that are limited
  int resizes_ = 0;                      // how often it changed
  bool claiming_ = false;                // they have been launched with this counter
  Clock::Point issued_;                  // when they were last launched
  bool told_ = false;                    // they are to stop
  int stops_ = 0;                        // how often they were told so
  bool drained_ = false;                 // the last block of the grid has been claimed
  bool probed_ = false;                  // the counter was asked for, and the answer not looked at yet
  Clock::Point next_probe_;              // when to ask for it again
  std::optional<uint32_t> peeked_;       // what it was when goes_on() last looked
};

}  // namespace bandsaw::runner
