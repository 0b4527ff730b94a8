// An arbiter that only remembers what it was told.
#pragma once

#include <map>

#include "backend/vgpud/arbiter/arbiter.h"

namespace bandsaw {

class FakeArbiter : public Arbiter {
 public:
  Status add(const std::string& vgpu, const EngineShares& shares) override {
    if (!shares_.emplace(vgpu, shares).second) return Status::error(EEXIST, "'{}' is there", vgpu);
    return {};
  }
  Status set_shares(const std::string& vgpu, const EngineShares& shares) override {
    if (!shares_.contains(vgpu)) return Status::error(ENOENT, "no '{}'", vgpu);
    shares_[vgpu] = shares;
    return {};
  }
  void remove(const std::string& vgpu) override { shares_.erase(vgpu); }
  void set_sharing(const std::string& vgpu, Sharing sharing) override { sharing_[vgpu] = sharing; }
  void set_latency(const std::string& vgpu, int64_t latency_ns) override { latency_[vgpu] = latency_ns; }
  void set_kernel_deadline(const std::string& vgpu, int64_t deadline_ns) override { deadline_[vgpu] = deadline_ns; }
  void set_sm_part(const std::string& vgpu, double part) override { parts_[vgpu] = part; }
  void set_memory(const std::string& vgpu, const std::optional<MemoryTerms>& terms) override { memory_[vgpu] = terms; }
  uint64_t memory_debt() const override { return debt; }
  std::map<std::string, std::optional<MemoryTerms>> memory_;
  uint64_t debt = 0;
  void set_planning_mode(PlanningMode mode) override { mode_ = mode; }
  void set_plan_sms(int sms) override { plan_sms_ = sms; }
  int plan_sms() const { return plan_sms_; }
  Status set_policy(const std::string& policy, sched::QueueModel model) override {
    options_.policy = policy;
    options_.model = model;
    return {};
  }
  ArbiterOptions options() const override { return options_; }
  std::string why_gates() const override { return "nobody is there"; }
  bool shares_by_progress() const override { return false; }
  void connect(const std::string&, UniqueFd) override {}
  std::vector<VgpuUse> use() const override {
    std::vector<VgpuUse> result;
    for (const auto& [vgpu, shares] : shares_) {
      VgpuUse use{.vgpu = vgpu, .shares = shares};
      use.engines[0].busy_ns = 1500;
      use.engines[2].waiting = 3;
      use.latency_means = latency_means_;
      use.latency_cost_ns = 1'234'567;
      use.keeps_engine = true;
      result.push_back(use);
    }
    return result;
  }
  PlanState plan() const override { return {}; }
  void start_trace() override { tracing_ = true; }
  std::vector<TimeSliceRecord> take_trace(uint64_t* lost) override {
    *lost = 7;
    tracing_ = false;
    return records_;
  }

  std::map<std::string, EngineShares> shares_;
  std::map<std::string, Sharing> sharing_;
  std::map<std::string, int64_t> latency_, deadline_;
  LatencyMeans latency_means_ = LatencyMeans::kNothing;
  std::map<std::string, double> parts_;
  PlanningMode mode_ = PlanningMode::kMps;
  int plan_sms_ = 0;
  ArbiterOptions options_;
  std::vector<TimeSliceRecord> records_;
  bool tracing_ = false;
};

}  // namespace bandsaw
