// Virtual GPUs that have an engine together, in virtual time. The engine either divides its speed among those who are
// on it, or (as a GPU with room for all) serves each as if it were alone.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/vgpud/arbiter_fixture.h"

namespace bandsaw {

constexpr Time kStep = 20 * kMicrosecond;

struct Tenant {
  std::string name;
  bool mps = true;  // others may have the engine with it
  unsigned engine = kCompute;
  std::unique_ptr<GrantPage> grant_page = std::make_unique<GrantPage>();
  Time length = kMillisecond;
  double told = 1;  // part of the time that it admits
  uint32_t at_once = 2;

  std::deque<double> running{};  // what is left of each grid slice, alone on the engine
  Time head_since = 0;
  bool asking = false;
  uint64_t done = 0, charged = 0;

  Gate& gate() { return grant_page->gates[0][engine]; }
};

class ArbiterMpsTest : public ArbiterFixture {
 protected:
  void make(ArbiterOptions options = {}) { core_ = std::make_unique<ArbiterCore>(options); }
  Tenant& join(const std::string& name, int percent, Sharing sharing, int cap = 100) {
    add(name, percent, sharing, cap);
    Tenant& tenant = *tenants_.emplace_back(std::make_unique<Tenant>());
    tenant.name = name;
    tenant.mps = sharing == Sharing::kMps;
    core_->attach(name, tenant.grant_page.get(), now_);
    next_ = core_->run(now_);
    return tenant;
  }
  void tell(Tenant& tenant) { ArbiterFixture::tell(tenant.name, *tenant.grant_page); }
  void begin(Tenant& tenant) {
    if (tenant.running.empty()) tenant.head_since = now_;
    tenant.running.push_back(static_cast<double>(tenant.length));
  }
  void want(Tenant& tenant) {
    Gate& gate = tenant.gate();
    if (tenant.asking && gate.granted == gate.asked) {
      tenant.asking = false;
      ++gate.begun;
      begin(tenant);
    }
    while (!tenant.asking && tenant.running.size() < tenant.at_once) {
      if (gate.open) {
        ++gate.begun;
        begin(tenant);
        continue;
      }
      ++gate.asked;
      tenant.asking = true;
      tell(tenant);
      if (gate.granted == gate.asked) return want(tenant);
    }
  }
  void end(Tenant& tenant) {
    tenant.running.pop_front();
    ++tenant.done;
    Gate& gate = tenant.gate();
    gate.busy_ns += static_cast<uint64_t>(static_cast<double>(now_ - tenant.head_since) * tenant.told);
    tenant.head_since = now_;
    ++gate.ended;
    if (!gate.open) tell(tenant);
  }
  int holders() const {
    int count = 0;
    for (const auto& tenant : tenants_) count += !tenant->running.empty();
    return count;
  }
  void run_for(Time time) {
    for (const Time until = now_ + time; now_ < until && !HasFatalFailure();) {
      for (auto& tenant : tenants_) want(*tenant);
      const int count = holders();
      for (auto& tenant : tenants_) {
        ASSERT_TRUE(tenant->mps || tenant->running.empty() || count == 1) << tenant->name << " is not alone";
      }
      most_ = std::max(most_, count);
      idle_ += count == 0 ? kStep : 0;
      now_ += kStep;
      take_turns();
      for (auto& tenant : tenants_) {
        if (tenant->running.empty() || (in_turns_ && tenant.get() != served_)) continue;
        tenant->running.front() -= static_cast<double>(kStep) / (divides_ && !in_turns_ ? count : 1);
        if (tenant->running.front() < 1) end(*tenant);
      }
      if (now_ >= next_) next_ = core_->run(now_);
    }
  }
  // Charged since the last call, in percent of `time`.
  double charged(Tenant& tenant, Time time) {
    return ArbiterFixture::charged(tenant.name, &tenant.charged, time, tenant.engine);
  }

  Time idle_ = 0;
  int most_ = 0;
  bool divides_ = true;
  bool in_turns_ = false;  // one grid slice, or copy, after the other: of each tenant in its turn
  std::vector<std::unique_ptr<Tenant>> tenants_;

 private:
  void take_turns() {
    if (!in_turns_ || tenants_.empty() || (served_ && served_->done == served_done_ && !served_->running.empty()))
      return;
    for (size_t i = 1; i <= tenants_.size(); ++i) {
      Tenant* const next = tenants_[(turn_ + i) % tenants_.size()].get();
      if (next->running.empty()) continue;
      turn_ = (turn_ + i) % tenants_.size();
      served_ = next;
      served_done_ = next->done;
      next->head_since = now_ - kStep;
      return;
    }
  }

  Tenant* served_ = nullptr;
  uint64_t served_done_ = 0;
  size_t turn_ = 0;
};

}  // namespace bandsaw
