// Tenants whose long kernels are described, planned and cut, on the simulated GPU of the slice library's tests, in
// virtual time.
#pragma once

#include <deque>

#include "tests/unit/slice/workloads.h"
#include "tests/unit/vgpud/arbiter_fixture.h"
#include "tools/benchmarks/research/planning/lab_planners.h"

namespace bandsaw {

// A runner with one stream of launches of one kernel, each cut into grid slices of which two are in flight.
struct PlannedTenant {
  std::string name;
  slice::SimKernel kernel;
  slice::BlockNeeds needs() const { return kernel.needs; }
  std::unique_ptr<GrantPage> grant_page = std::make_unique<GrantPage>();
  KernelVariant variant = KernelVariant::kSliced;
  double block_ns = 0;  // alone
  uint64_t blocks = 0, minimum = 0, left = 0, call = 0;
  bool describes = true, stopped = false, reports = true;
  int claims = 0;                    // threads of a block and nothing else; 0: the truth
  bool brief = false;                // it describes its needs as short work's
  bool leaves_sms = false;           // its persistent blocks can leave single SMs
  bool waits = false;                // for the end of each launch
  uint64_t launches = ~uint64_t{0};  // to come

  struct GridSlice {
    double left;
    uint64_t number;  // in the order of all
    int resident;
  };
  std::deque<GridSlice> running{};
  Time head_since = 0, reported = 0;
  bool asking = false;
  double done = 0;                // blocks
  std::vector<uint64_t> granted;  // sizes of planned grid slices
  std::vector<uint32_t> residents;
  uint64_t charged = 0;

  Gate& gate() { return grant_page->gates[0][0]; }
  bool idle() const { return launches == 0 && left == 0 && running.empty(); }
};

class PlannedTest : public ArbiterFixture {
 protected:
  static constexpr Time kStep = 20 * kMicrosecond, kLength = 20 * kMillisecond;

  void make(PlanningMode mode, ArbiterOptions options = {}) {
    core_.reset();
    tenants_.clear();
    if (!options.plan.planners) options.plan.planners = research::lab_planners({});
    core_ = std::make_unique<ArbiterCore>(options);
    core_->set_planning_mode(mode, now_);
  }
  PlannedTenant& join(int kind, int percent = 25, const std::string& name = "", Sharing sharing = Sharing::kMps) {
    PlannedTenant& tenant = *tenants_.emplace_back(std::make_unique<PlannedTenant>());
    tenant.kernel = kernels_[static_cast<size_t>(kind)];
    tenant.name = name.empty() ? tenant.kernel.name : name;
    tenant.block_ns = 1 / gpu_.solo_rate(tenant.kernel);
    tenant.blocks = static_cast<uint64_t>(static_cast<double>(kLength) / tenant.block_ns);
    const auto sms = static_cast<uint64_t>(gpu_.gpu().sms);
    const auto least = static_cast<uint64_t>(150 * kMicrosecond / tenant.block_ns);
    const uint64_t wave = static_cast<uint64_t>(resident_blocks(gpu_.gpu(), tenant.needs())) * sms;
    tenant.minimum = std::max(wave, (least + sms - 1) / sms * sms);
    add(tenant.name, percent, sharing);
    core_->run(now_);
    core_->attach(tenant.name, tenant.grant_page.get(), now_);
    next_ = core_->run(now_);
    return tenant;
  }
  void leave(PlannedTenant& tenant) {
    core_->remove(tenant.name, now_);
    next_ = core_->run(now_);
    std::erase_if(tenants_, [&](const auto& one) { return one.get() == &tenant; });
  }
  void tell(PlannedTenant& tenant) { ArbiterFixture::tell(tenant.name, *tenant.grant_page); }

  KernelDescriptor descriptor(const PlannedTenant& tenant) const {
    KernelDescriptor descriptor;
    descriptor.call = tenant.call;
    descriptor.shape = std::hash<std::string>()(tenant.kernel.name);
    descriptor.blocks = tenant.blocks;
    descriptor.left = tenant.left;
    descriptor.minimum = tenant.minimum;
    descriptor.block_ps = static_cast<uint64_t>(tenant.block_ns * 1000);
    descriptor.most_resident = static_cast<uint32_t>(resident_blocks(gpu_.gpu(), tenant.needs()));
    descriptor.variant = static_cast<uint32_t>(tenant.variant);
    descriptor.leaves_sms = tenant.leaves_sms ? 1 : 0;
    descriptor.threads = static_cast<uint32_t>(tenant.needs().threads);
    descriptor.registers = static_cast<uint32_t>(tenant.needs().registers);
    descriptor.shared_bytes = static_cast<uint32_t>(tenant.needs().shared);
    descriptor.memory = static_cast<uint32_t>(tenant.kernel.accesses / tenant.kernel.instructions * kDescriptorParts);
    tenant.kernel.name.copy(descriptor.kernel, sizeof descriptor.kernel - 1);
    if (tenant.claims != 0) {
      descriptor.threads = static_cast<uint32_t>(tenant.claims);
      descriptor.registers = descriptor.shared_bytes = 0;
    }
    return descriptor;
  }
  void begin(PlannedTenant& tenant, bool by_grant) {
    Gate& gate = tenant.gate();
    ++gate.begun;
    uint64_t blocks = tenant.minimum;
    if (tenant.variant == KernelVariant::kPersistent) {
      blocks = tenant.left;  // it goes on until it is told to stop
    } else if (by_grant && gate.blocks != 0) {
      blocks = gate.blocks;
      tenant.granted.push_back(blocks);
    }
    const int resident = by_grant && tenant.grant_page->planned ? static_cast<int>(gate.resident.load()) : 0;
    if (resident != 0) tenant.residents.push_back(static_cast<uint32_t>(resident));
    blocks = std::min(blocks, tenant.left);
    tenant.left -= blocks;
    if (tenant.running.empty()) tenant.head_since = now_;
    tenant.running.push_back({static_cast<double>(blocks), grid_slices_++, resident});
  }
  void want(PlannedTenant& tenant) {
    if (tenant.stopped) return;
    Gate& gate = tenant.gate();
    if (tenant.asking && (gate.granted == gate.asked || tenant.grant_page->no_arbiter)) {
      tenant.asking = false;
      begin(tenant, true);
    }
    const size_t at_once = tenant.variant == KernelVariant::kPersistent || tenant.waits ? 1 : 2;
    while (!tenant.asking && tenant.running.size() < at_once) {
      if (tenant.left == 0) {
        if (tenant.launches == 0) return;
        --tenant.launches;
        ++tenant.call;
        tenant.left = tenant.blocks;
      }
      if (gate.open || tenant.grant_page->no_arbiter) {
        KernelDescriptor next = descriptor(tenant);
        next.asked = gate.asked;
        if (tenant.describes && tenant.grant_page->planned)
          write_descriptor(tenant.grant_page->kernel_descriptors[0], next);
        begin(tenant, false);
        continue;
      }
      KernelDescriptor next = descriptor(tenant);
      next.asked = gate.asked + 1;
      if (tenant.brief) {
        next.call = 0;
        next.brief = 1;
      }
      if ((tenant.describes || tenant.brief) && tenant.grant_page->planned)
        write_descriptor(tenant.grant_page->kernel_descriptors[0], next);
      ++gate.asked;
      tenant.asking = true;
      tell(tenant);
      if (gate.granted == gate.asked) return want(tenant);
    }
  }
  void end(PlannedTenant& tenant) {
    tenant.running.pop_front();
    Gate& gate = tenant.gate();
    gate.busy_ns += static_cast<uint64_t>(now_ - tenant.head_since);
    tenant.head_since = now_;
    ++gate.ended;
    if (!gate.open && !tenant.grant_page->no_arbiter) tell(tenant);
  }
  // Told that it is to have other residency, or that others want the engine.
  void maybe_stop(PlannedTenant& tenant) {
    if (tenant.variant != KernelVariant::kPersistent || tenant.running.empty() || tenant.left > 0) return;
    PlannedTenant::GridSlice& slice = tenant.running.front();
    const Gate& gate = tenant.gate();
    const bool other = tenant.grant_page->planned && static_cast<int>(gate.resident) != slice.resident;
    if (gate.open || tenant.grant_page->no_arbiter || (!other && gate.no_waiters) ||
        now_ - tenant.head_since < kMillisecond) {
      return;
    }
    tenant.left = static_cast<uint64_t>(slice.left);
    if (tenant.left > 0) end(tenant);
  }

  // How many blocks the persistent ones of a pair have claimed.
  void report(PlannedTenant& tenant) {
    if (tenant.variant != KernelVariant::kPersistent || !tenant.reports || tenant.running.empty() || tenant.asking)
      return;
    const PlannedTenant::GridSlice& slice = tenant.running.front();
    if (slice.resident == 0 || now_ - std::max(tenant.reported, tenant.head_since) < 2 * kMillisecond) return;
    tenant.reported = now_;
    KernelDescriptor seen = descriptor(tenant);
    seen.asked = tenant.gate().asked;
    seen.left = tenant.left + static_cast<uint64_t>(slice.left);
    seen.resident = static_cast<uint32_t>(slice.resident);
    seen.seen_ns = now_;
    write_descriptor(tenant.grant_page->kernel_descriptors[0], seen);
    tell(tenant);
  }

  // Grid slices have what those that were issued before them leave of the SMs.
  std::vector<double> rates() {
    struct On {
      size_t tenant;
      const PlannedTenant::GridSlice* slice;
    };
    std::vector<On> on;
    for (size_t i = 0; i < tenants_.size(); ++i) {
      for (const PlannedTenant::GridSlice& slice : tenants_[i]->running) on.push_back({i, &slice});
    }
    std::sort(on.begin(), on.end(), [](const On& a, const On& b) { return a.slice->number < b.slice->number; });
    slice::Room room = slice::room_of(gpu_.gpu());
    std::vector<int> blocks(tenants_.size(), 0);
    for (const auto& [i, slice] : on) {
      int most = static_cast<int>(std::ceil(std::min(1e6, slice->left / gpu_.gpu().sms)));
      if (slice->resident > 0 && tenants_[i]->variant == KernelVariant::kPersistent) most = slice->resident;
      if (tenants_[i]->leaves_sms && tenants_[i]->gate().leave_sms > 0)
        most = 4;  // half of each SM stands for half of all
      most = std::min(most, fit(gpu_.gpu(), room, tenants_[i]->needs()));
      room = beside(gpu_.gpu(), room, tenants_[i]->needs(), most);
      blocks[i] += most;
    }
    std::vector<slice::Resident> residents;
    std::string key;
    for (size_t i = 0; i < tenants_.size(); ++i) {
      residents.push_back({&tenants_[i]->kernel, static_cast<double>(blocks[i] * gpu_.gpu().sms)});
      key += tenants_[i]->kernel.name + std::to_string(blocks[i]) + " ";
    }
    auto known = rates_.find(key);
    if (known == rates_.end()) known = rates_.emplace(key, gpu_.rates(residents)).first;
    std::vector<double> found = known->second;
    const bool beside = std::count_if(blocks.begin(), blocks.end(), [](int count) { return count > 0; }) > 1;
    if (beside) std::for_each(found.begin(), found.end(), [this](double& rate) { rate *= beside_; });
    return found;
  }
  void run_for(Time time) {
    for (const Time until = now_ + time; now_ < until && !HasFatalFailure();) {
      for (auto& tenant : tenants_) maybe_stop(*tenant);
      for (auto& tenant : tenants_) want(*tenant);
      for (auto& tenant : tenants_) report(*tenant);
      const std::vector<double> speed = rates();
      idle_ += std::all_of(speed.begin(), speed.end(), [](double rate) { return rate == 0; }) ? kStep : 0;
      now_ += kStep;
      for (size_t i = 0; i < tenants_.size(); ++i) {
        PlannedTenant& tenant = *tenants_[i];
        if (tenant.running.empty()) continue;
        for (double does = speed[i] * static_cast<double>(kStep); does > 0 && !tenant.running.empty();) {
          const double did = std::min(does, tenant.running.front().left);
          tenant.running.front().left -= did;
          tenant.done += did;
          does -= did;
          if (tenant.running.front().left < 1) end(tenant);
        }
      }
      if (now_ >= next_) next_ = core_->run(now_);
    }
  }
  // Time alone for what was done, by the time that it took: above 1 where kernels gain by each other.
  double throughput(Time time) {
    double sum = 0;
    for (auto& tenant : tenants_) sum += std::exchange(tenant->done, 0) * tenant->block_ns;
    return sum / static_cast<double>(time);
  }
  double charged(PlannedTenant& tenant, Time time) {
    return ArbiterFixture::charged(tenant.name, &tenant.charged, time);
  }

  const slice::SimGpu gpu_{slice::GpuModel{}};
  // As the library's tests have them, with blocks so long that a wave takes some tenths of a millisecond.
  static std::vector<slice::SimKernel> long_kernels() {
    std::vector<slice::SimKernel> kernels = slice::eight_kernels();
    for (slice::SimKernel& kernel : kernels) {
      kernel.instructions *= 8;
      kernel.accesses *= 8;
    }
    return kernels;
  }
  const std::vector<slice::SimKernel> kernels_ = long_kernels();
  std::map<std::string, std::vector<double>> rates_;
  double beside_ = 1;  // times the speeds of kernels beside others: what no model knows of
  Time idle_ = 0;
  uint64_t grid_slices_ = 0;
  std::vector<std::unique_ptr<PlannedTenant>> tenants_;
};

}  // namespace bandsaw
