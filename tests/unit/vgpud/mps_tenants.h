// Virtual GPUs that have an engine together, in virtual time. The engine either divides its speed among those who are
// on it, or (as a GPU with room for all) serves each as if it were alone.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/vgpud/arbiter_fixture.h"

namespace bandsaw {

constexpr Time kStep = 20 * kMicrosecond;
constexpr Time kComes = 10 * kMillisecond;

struct Tenant {
  std::string name;
  bool mps = true;  // others may have the engine with it
  unsigned engine = kCompute;
  std::unique_ptr<GrantPage> grant_page = std::make_unique<GrantPage>();
  Time length = kMillisecond;
  double told = 1;    // part of the time that it admits
  bool known = true;  // its runner knows what its launches take alone
  bool own_sms = false;
  bool came = false;
  uint32_t at_once = 2;

  std::deque<double> running{};  // what is left of each grid slice, alone on the engine
  std::deque<Time> lengths{};    // of these
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
    if (!tenant.mps && !std::exchange(tenant.came, true)) beside_until_ = now_ + kComes;
    tenant.running.push_back(static_cast<double>(tenant.length));
    tenant.lengths.push_back(tenant.length);
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
    const auto busy = static_cast<uint64_t>(static_cast<double>(now_ - tenant.head_since) * tenant.told);
    (tenant.known ? gate.beside_ns : gate.unknown_ns) += busy;
    if (tenant.known) gate.beside_own_ns += std::min(busy, static_cast<uint64_t>(tenant.lengths.front()));
    tenant.lengths.pop_front();
    gate.busy_ns += busy;
    tenant.head_since = now_;
    ++gate.ended;
    if (!gate.open) tell(tenant);
  }
  int holders() const {
    int count = 0;
    for (const auto& tenant : tenants_) count += !tenant->running.empty();
    return count;
  }
  int contenders() const {
    int count = 0;
    for (const auto& tenant : tenants_) count += !tenant->running.empty() && !tenant->own_sms;
    return count;
  }
  void run_for(Time time) {
    for (const Time until = now_ + time; now_ < until && !HasFatalFailure();) {
      for (auto& tenant : tenants_) want(*tenant);
      const int count = holders(), contend = contenders();
      for (auto& tenant : tenants_) {
        const bool alone = tenant->mps || tenant->running.empty() || count == 1;
        ASSERT_TRUE(alone || now_ < beside_until_)
            << tenant->name << " is not alone at " << now_ / kMicrosecond << " us";
      }
      most_ = std::max(most_, count);
      idle_ += count == 0 ? kStep : 0;
      now_ += kStep;
      take_turns();
      for (auto& tenant : tenants_) {
        if (tenant->running.empty() || (in_turns_ && tenant.get() != served_)) continue;
        tenant->running.front() -=
            static_cast<double>(kStep) / (divides_ && !in_turns_ && !tenant->own_sms ? contend : 1);
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
  Time beside_until_ = 0;  // what MPS ones had begun before a time-sliced one came goes on beside that
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
