// An arbiter's judgement in virtual time, and whoever stands at its gates.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "backend/vgpud/arbiter/arbiter_core.h"

namespace bandsaw {

using sched::kMicrosecond;
using sched::kMillisecond;
using sched::kSecond;
using sched::Time;

class ArbiterFixture : public testing::Test {
 protected:
  void TearDown() override { core_.reset(); }  // before the grant pages go

  void add(const std::string& name, int percent, Sharing sharing, int cap = 100) {
    EngineShares shares;
    shares.fill({.percent = percent, .reservation = 0, .cap = cap, .priority = 0});
    EXPECT_TRUE(core_->add(name, shares, now_).ok());
    core_->set_sharing(name, sharing);
  }
  void tell(const std::string& name, GrantPage& grant_page) {
    set_pending(grant_page, 0);
    core_->on_pending(name, now_);
    next_ = core_->run(now_);
  }
  // As a runner that has been taken over writes, somewhere.
  static void scribble(GrantPage& grant_page, std::mt19937& random) {
    Gate& gate = grant_page.gates[random() % kGateSlots][random() % kEngines];
    std::atomic<uint32_t>* const words[] = {&gate.begun,   &gate.ended, &gate.asked,
                                            &gate.granted, &gate.open,  &gate.no_waiters};
    *words[random() % 6] = random() % 3 ? static_cast<uint32_t>(random()) : random() % 4;
    gate.busy_ns = random() % 2 ? ~uint64_t{0} : random();
    gate.own_ns = random() % 2 ? ~uint64_t{0} : random();
    gate.paused_ns = random() % 2 ? ~uint64_t{0} : random();
    gate.issued_ns = random() % 2 ? ~uint64_t{0} : random();
    gate.beside_ns = random() % 2 ? ~uint64_t{0} : random();
    gate.beside_own_ns = random() % 2 ? ~uint64_t{0} : random();
    for (auto& word : grant_page.pending) word = ~uint64_t{0};
  }
  // Charged since the last call, whose sum is in `sum`, in percent of `time`.
  double charged(const std::string& name, uint64_t* sum, Time time, unsigned engine = kCompute) {
    for (const VgpuUse& use : core_->use()) {
      if (use.vgpu != name) continue;
      const uint64_t before = std::exchange(*sum, use.engines[engine].busy_ns);
      return 100 * static_cast<double>(*sum - before) / static_cast<double>(time);
    }
    return -1;
  }

  Time now_ = kSecond, next_ = 0;
  std::unique_ptr<ArbiterCore> core_;
};

}  // namespace bandsaw
