// The arbiter where a mode plans which kernels run beside each other.
#include <random>

#include "tests/unit/vgpud/planned.h"

namespace bandsaw {
namespace {

using slice::kBs;
using slice::kPc;
using slice::kSad;
using slice::kTea;

constexpr PlanningMode kPlanned[] = {PlanningMode::kKernelet, PlanningMode::kPersistentGreedy, PlanningMode::kOpt,
                                     PlanningMode::kRandom, PlanningMode::kMaestroStp};

ArbiterOptions unscheduled() {
  ArbiterOptions options;
  options.scheduled = false;
  options.policy = "fifo";
  return options;
}

TEST_F(PlannedTest, PairsThatGainRunBesideEachOther) {
  for (const KernelVariant variant : {KernelVariant::kSliced, KernelVariant::kPersistent}) {
    std::map<PlanningMode, double> total;
    for (const PlanningMode mode : {PlanningMode::kSlicesFifo, PlanningMode::kKernelet, PlanningMode::kOpt,
                                    PlanningMode::kRandom, PlanningMode::kPersistentGreedy}) {
      ArbiterOptions options = unscheduled();
      options.plan.planner.wait_limit = 100 * kMillisecond;
      make(mode, options);
      for (const int kind : {kPc, kBs, kTea, kSad}) join(kind).variant = variant;
      run_for(200 * kMillisecond);
      throughput(1);
      idle_ = 0;
      run_for(kSecond);
      total[mode] = throughput(kSecond);
      const PlanState state = core_->plan();
      std::printf("%d %-18s %.3f: %lu plans, %lu pairs, %lu alone, %lu slices, %lu resizes\n",
                  static_cast<int>(variant), to_text(mode), total[mode], state.plans, state.pairs, state.alone,
                  state.grants, state.resizes);
      EXPECT_LE(idle_, kSecond / 50) << to_text(mode);
      EXPECT_EQ(state.planned, mode != PlanningMode::kSlicesFifo);
      if (!state.planned) continue;
      EXPECT_GT(state.pairs, 20u) << to_text(mode);
      EXPECT_EQ(state.refused, 0u);
      EXPECT_EQ(state.unplanned, 0u);
      for (auto& tenant : tenants_) EXPECT_FALSE(tenant->granted.empty() && tenant->residents.empty()) << tenant->name;
    }
    EXPECT_GT(total[PlanningMode::kKernelet], total[PlanningMode::kRandom] - 0.02);
    EXPECT_GT(total[PlanningMode::kKernelet], 1.35);
  }
}

// Of short work beside kernels whose persistent blocks have all the room on the SMs.
TEST_F(PlannedTest, ShortWorkDoesNotWaitForWholeKernels) {
  for (const int test : {1, 2, 3, 4}) {
    const int others = test > 2 ? test - 2 : test;
    make(PlanningMode::kKernelet, unscheduled());
    PlannedTenant& brief = join(kBs);
    brief.describes = false;
    brief.brief = test > 2;
    brief.waits = true;
    brief.blocks = brief.minimum = 4 * static_cast<uint64_t>(gpu_.gpu().sms);
    join(kTea).variant = KernelVariant::kPersistent;
    if (others == 2) join(kPc).variant = KernelVariant::kPersistent;
    run_for(200 * kMillisecond);
    brief.done = 0;
    throughput(1);
    run_for(2 * kSecond);
    const double launches = brief.done / static_cast<double>(brief.blocks) / 2, total = throughput(2 * kSecond);
    const PlanState state = core_->plan();
    std::printf("beside %d: %.0f launches a second, %.3f in all, %lu had no room, %lu of %lu judged, error %.2f\n",
                others, launches, total, state.room_requests, state.judged, state.foreseen, state.forecast_error);
    EXPECT_GT(launches, others == 1 ? 900 : 1400);  // 148 and 76, if none had to make room
    EXPECT_GT(total, others == 1 ? 0.98 : 1.4);
    if (!brief.brief) continue;
    EXPECT_LT(state.room_requests, 10u);  // 267 and more, if nothing is foreseen
    EXPECT_LT(state.forecast_error, 0.2);
  }
}

// It arrives now and then, when the room of the last time has been given back.
TEST_F(PlannedTest, RoomIsMadeAtOnceForWorkThatIsForeseen) {
  std::map<bool, Time> waited;
  for (const bool foreseen : {false, true}) {
    make(PlanningMode::kKernelet, unscheduled());
    PlannedTenant& brief = join(kBs);
    brief.describes = false;
    brief.brief = foreseen;
    brief.waits = true;
    brief.launches = 0;
    brief.blocks = brief.minimum = 4 * static_cast<uint64_t>(gpu_.gpu().sms);
    join(kTea).variant = KernelVariant::kPersistent;
    for (int i = 0; i < 20; ++i) {
      run_for(150 * kMillisecond + i * 900 * kMicrosecond);
      brief.launches = 1;
      const Time began = now_;
      while (!HasFatalFailure() && now_ < began + kSecond && (brief.launches > 0 || !brief.idle())) run_for(kStep);
      waited[foreseen] = std::max(waited[foreseen], now_ - began);
    }
    std::printf("foreseen %d: %ld us at most, %lu requests\n", foreseen, waited[foreseen] / 1000,
                core_->plan().room_requests);
    EXPECT_EQ(core_->plan().foreseen, foreseen ? 20u : 0u);
  }
  EXPECT_LT(waited[true], 600 * kMicrosecond);
  EXPECT_GT(waited[false], kMillisecond);  // else there is nothing to gain
}

// Who was alone, and has no plan, leaves SMs as one that is planned does; its blocks do not all end for it.
TEST_F(PlannedTest, OneThatWasAloneLeavesSingleSms) {
  ArbiterOptions options = unscheduled();
  options.plan.take_sms = true;
  make(PlanningMode::kKernelet, options);
  PlannedTenant& brief = join(kBs);
  brief.describes = false;
  brief.brief = brief.waits = true;
  brief.launches = 0;
  const auto sms = static_cast<uint64_t>(gpu_.gpu().sms);
  brief.blocks = brief.minimum = sms / 2;
  PlannedTenant& alone = join(kTea);
  alone.variant = KernelVariant::kPersistent;
  alone.leaves_sms = true;
  alone.blocks *= 50;
  run_for(50 * kMillisecond);
  ASSERT_EQ(alone.gate().open, 1u);
  const uint32_t begun = alone.gate().begun;
  brief.launches = 1;
  run_for(kMillisecond);
  EXPECT_EQ(alone.gate().open, 0u);
  EXPECT_GT(alone.gate().leave_sms, 0u);
  EXPECT_LE(alone.gate().leave_sms, sms / 2);
  EXPECT_EQ(alone.gate().no_waiters, 1u);
  EXPECT_EQ(core_->plan().room_requests, 1u);
  EXPECT_EQ(core_->plan().sm_requests, 1u);
  run_for(300 * kMillisecond);  // the SMs are kept for some milliseconds
  EXPECT_EQ(alone.gate().leave_sms, 0u);
  EXPECT_EQ(alone.gate().begun, begun);
  EXPECT_TRUE(brief.idle());
}

// It is no sign of lacking room that it takes long.
TEST_F(PlannedTest, LongerWorkThatHasRoomTakesNothingFromOthers) {
  std::map<bool, uint64_t> requests;
  for (const bool foreseen : {false, true}) {
    make(PlanningMode::kKernelet, unscheduled());
    PlannedTenant& brief = join(kBs);
    brief.describes = false;
    brief.brief = foreseen;
    brief.waits = true;
    brief.launches = 20;  // alone: that is what it takes
    brief.blocks = brief.minimum = static_cast<uint64_t>(2 * kMillisecond / brief.block_ns);
    run_for(100 * kMillisecond);
    ASSERT_TRUE(brief.idle());
    PlannedTenant& longer = join(kTea);
    longer.variant = KernelVariant::kPersistent;
    run_for(100 * kMillisecond);
    const uint64_t before = core_->plan().room_requests;
    brief.launches = 30;
    run_for(kSecond);
    const PlanState state = core_->plan();
    std::printf("foreseen %d: %lu requests, %lu judged, error %.2f, %.3f of the long one\n", foreseen,
                state.room_requests - before, state.judged, state.forecast_error,
                longer.done * longer.block_ns / static_cast<double>(kSecond));
    requests[foreseen] = state.room_requests - before;
    EXPECT_EQ(state.judged > 20, foreseen);
  }
  EXPECT_GT(requests[false], 20u);
  EXPECT_LT(requests[true], requests[false] * 2 / 3);
}

// Caches that they spoil for each other, say.
TEST_F(PlannedTest, PairsThatProveToLoseRunOneAfterTheOther) {
  beside_ = 0.5;
  for (const bool reports : {true, false}) {
    make(PlanningMode::kKernelet, unscheduled());
    for (const int kind : {kPc, kTea}) {
      PlannedTenant& tenant = join(kind);
      tenant.variant = KernelVariant::kPersistent;
      tenant.reports = reports;
    }
    run_for(200 * kMillisecond);
    throughput(1);
    const uint64_t pairs = core_->plan().pairs;
    run_for(kSecond);
    const double total = throughput(kSecond);
    std::printf("reports %d: %.3f, %lu pairs\n", reports, total, core_->plan().pairs - pairs);
    if (reports) {
      EXPECT_GT(total, 0.94);
      EXPECT_EQ(core_->plan().pairs, pairs);
      EXPECT_GT(core_->plan().observed, 0u);
    } else {
      EXPECT_EQ(core_->plan().observed, 0u);
      EXPECT_LT(total, 0.85);  // else there is nothing to find out
    }
  }
}

// Who has seven of eight blocks on each SM pays for seven eighths.
TEST_F(PlannedTest, BlocksOnTheSmsAreCharged) {
  for (const bool by_blocks : {false, true}) {
    ArbiterOptions options = unscheduled();
    options.charge_by_blocks = by_blocks;
    make(PlanningMode::kPersistentGreedy, options);
    PlannedTenant &one = join(kPc), &two = join(kTea);
    one.variant = two.variant = KernelVariant::kPersistent;
    run_for(200 * kMillisecond);
    for (auto& tenant : tenants_) charged(*tenant, 1);
    double parts[2] = {};
    for (int i = 0; i < 1000; ++i) {
      run_for(kMillisecond);
      for (const PlanState::Part& part : core_->plan().plan) {
        const PlannedTenant& tenant = part.vgpu == one.name ? one : two;
        parts[part.vgpu == one.name ? 0 : 1] += footprint(gpu_.gpu(), tenant.needs(), part.resident);
      }
    }
    const double first = charged(one, kSecond), second = charged(two, kSecond);
    const double due = parts[0] / (parts[0] + parts[1]);
    std::printf("by blocks %d: %.1f and %.1f %%, of the blocks %.1f %%\n", by_blocks, first, second, 100 * due);
    EXPECT_NEAR(first + second, 100, 3);
    EXPECT_NEAR(first / (first + second), by_blocks ? due : 0.5, 0.015);
    EXPECT_GT(std::abs(due - 0.5), 0.05);  // else there is no difference to see
  }
}

// What a runner says of its blocks saves it no more than this.
TEST_F(PlannedTest, WhoSaysThatItsBlocksAreNothingIsChargedToo) {
  ArbiterOptions options = unscheduled();
  options.charge_by_blocks = true;
  make(PlanningMode::kPersistentGreedy, options);
  PlannedTenant &honest = join(kPc), &liar = join(kTea);
  honest.variant = liar.variant = KernelVariant::kPersistent;
  liar.claims = 1;
  run_for(200 * kMillisecond);
  for (auto& tenant : tenants_) charged(*tenant, 1);
  run_for(kSecond);
  EXPECT_GT(charged(liar, kSecond), 2);
}

TEST_F(PlannedTest, SharesHoldWhereKernelsArePlanned) {
  for (const PlanningMode mode : kPlanned) {
    make(mode);
    PlannedTenant &large = join(kPc, 50), &small = join(kTea, 25), &other = join(kSad, 25);
    run_for(400 * kMillisecond);
    for (auto& tenant : tenants_) charged(*tenant, 1);
    run_for(3 * kSecond);
    EXPECT_NEAR(charged(large, 3 * kSecond), 50, 4) << to_text(mode);
    EXPECT_NEAR(charged(small, 3 * kSecond), 25, 4) << to_text(mode);
    EXPECT_NEAR(charged(other, 3 * kSecond), 25, 4) << to_text(mode);
  }
}

TEST_F(PlannedTest, OneAloneGoesWithoutAsking) {
  for (const PlanningMode mode : kPlanned) {
    make(mode);
    PlannedTenant &alone = join(kPc), &other = join(kBs);
    other.launches = 0;
    run_for(100 * kMillisecond);
    idle_ = 0;
    alone.done = 0;
    run_for(500 * kMillisecond);
    EXPECT_EQ(alone.gate().open, 1u);
    EXPECT_EQ(idle_, 0);
    EXPECT_GT(throughput(500 * kMillisecond), 0.97);
    other.launches = 3;
    run_for(300 * kMillisecond);
    EXPECT_TRUE(other.idle());
    EXPECT_FALSE(other.granted.empty() && other.residents.empty()) << to_text(mode);
  }
}

// Without a policy nobody is asked to ask, but those whose kernels are planned.
TEST_F(PlannedTest, WithoutAPolicyOnlyPlansAreFollowed) {
  make(PlanningMode::kMps, unscheduled());
  PlannedTenant &one = join(kPc, 100), &two = join(kTea, 100);
  PlannedTenant& time_sliced = join(kSad, 100, "", Sharing::kTimeSliced);
  const auto without_arbiter = [](PlannedTenant& tenant) { return tenant.grant_page->no_arbiter == 1; };
  run_for(20 * kMillisecond);
  EXPECT_TRUE(without_arbiter(one) && without_arbiter(two) && without_arbiter(time_sliced));
  core_->set_planning_mode(PlanningMode::kKernelet, now_);
  next_ = core_->run(now_);
  EXPECT_FALSE(without_arbiter(one) || without_arbiter(two));
  EXPECT_TRUE(without_arbiter(time_sliced));
  EXPECT_EQ(one.grant_page->planned, 1u);
  EXPECT_EQ(time_sliced.grant_page->planned, 0u);
  run_for(200 * kMillisecond);
  EXPECT_GT(core_->plan().pairs, 0u);
  EXPECT_FALSE(one.granted.empty());
  core_->set_sharing("TEA", Sharing::kTimeSliced);
  next_ = core_->run(now_);
  EXPECT_TRUE(without_arbiter(two));
  core_->set_planning_mode(PlanningMode::kConsolidation, now_);
  next_ = core_->run(now_);
  EXPECT_FALSE(without_arbiter(one));
  EXPECT_EQ(one.grant_page->slicing_off, 1u);
  EXPECT_EQ(one.grant_page->planned, 0u);
  core_->set_planning_mode(PlanningMode::kMps, now_);
  next_ = core_->run(now_);
  EXPECT_TRUE(without_arbiter(one) && without_arbiter(two));
  EXPECT_EQ(one.grant_page->slicing_off, 0u);
  one.done = two.done = 0;
  run_for(100 * kMillisecond);
  EXPECT_GT(one.done * one.block_ns, 10.0 * kMillisecond);
  EXPECT_GT(two.done * two.block_ns, 10.0 * kMillisecond);
}

TEST_F(PlannedTest, NobodyWaitsForOneThatHasStopped) {
  for (const PlanningMode mode : kPlanned) {
    for (const bool scheduled : {true, false}) {
      ArbiterOptions options = scheduled ? ArbiterOptions{} : unscheduled();
      options.slice_timeout_ns = 20 * kMillisecond;
      options.plan.planner.wait_limit = 50 * kMillisecond;
      make(mode, options);
      PlannedTenant& still = join(kPc);
      join(kBs);
      join(kTea);
      run_for(100 * kMillisecond);
      still.stopped = true;
      run_for(20 * kMillisecond);
      throughput(1);
      idle_ = 0;
      run_for(300 * kMillisecond);
      EXPECT_GT(throughput(300 * kMillisecond), 0.9) << to_text(mode) << scheduled;
      EXPECT_LE(idle_, 6 * kMillisecond) << to_text(mode) << scheduled;
      still.stopped = false;
      still.done = 0;
      run_for(300 * kMillisecond);
      EXPECT_GT(still.done * still.block_ns, 9.0 * kMillisecond) << to_text(mode);
    }
  }
}

TEST_F(PlannedTest, TenantsComeAndGoAndModesChangeUnderLoad) {
  std::mt19937 random(5);
  for (const bool scheduled : {true, false}) {
    ArbiterOptions options = scheduled ? ArbiterOptions{} : unscheduled();
    options.plan.planner.wait_limit = 50 * kMillisecond;
    make(PlanningMode::kKernelet, options);
    for (int turn = 0; turn < 60; ++turn) {
      if (tenants_.size() < 4) {
        const int kind = static_cast<int>(random() % 8);
        const bool mps = random() % 5 != 0;
        join(kind, 20, "t" + std::to_string(turn), mps ? Sharing::kMps : Sharing::kTimeSliced);
        tenants_.back()->variant = random() % 3 == 0 ? KernelVariant::kPersistent : KernelVariant::kSliced;
        tenants_.back()->describes = random() % 4 != 0;
      } else if (random() % 2) {
        leave(*tenants_[random() % tenants_.size()]);
      }
      if (random() % 3 == 0) core_->set_planning_mode(static_cast<PlanningMode>(random() % 7), now_);
      if (random() % 8 == 0 && scheduled) {
        core_->set_policy(random() % 2 ? "band+" : "credit", sched::QueueModel::kMrq, now_);
      }
      next_ = core_->run(now_);
      for (auto& tenant : tenants_) tenant->done = 0;
      idle_ = 0;
      run_for(300 * kMillisecond);
      EXPECT_LE(idle_, 150 * kMillisecond) << turn;
      for (auto& tenant : tenants_)
        EXPECT_TRUE(tenant->done > 0 || !tenant->running.empty()) << tenant->name << " in turn " << turn;
    }
  }
}

TEST_F(PlannedTest, PersistentBlocksAreGivenOutAnewWithEveryArrival) {
  make(PlanningMode::kPersistentGreedy, unscheduled());
  PlannedTenant &one = join(kPc), &two = join(kTea);
  one.variant = two.variant = KernelVariant::kPersistent;
  run_for(100 * kMillisecond);
  ASSERT_FALSE(one.residents.empty());
  ASSERT_FALSE(two.residents.empty());
  const uint32_t before = one.gate().resident;
  const slice::Room room = beside(gpu_.gpu(), room_of(gpu_.gpu()), one.needs(), static_cast<int>(before));
  EXPECT_GE(fit(gpu_.gpu(), room, two.needs()), static_cast<int>(two.gate().resident));
  PlannedTenant& three = join(kSad);
  three.variant = KernelVariant::kPersistent;
  throughput(1);
  run_for(300 * kMillisecond);
  EXPECT_FALSE(three.residents.empty());
  EXPECT_GT(core_->plan().resizes, 0u);
  EXPECT_GT(throughput(300 * kMillisecond), 1.0);
}

TEST_F(PlannedTest, ASeedIsASchedule) {
  const auto sizes = [&](uint64_t seed) {
    ArbiterOptions options = unscheduled();
    options.plan.planners = research::lab_planners({.seed = seed, .profits = {}});
    now_ = kSecond;
    make(PlanningMode::kRandom, options);
    for (const int kind : {kPc, kBs, kTea, kSad}) join(kind);
    run_for(200 * kMillisecond);
    std::vector<uint64_t> all;
    for (auto& tenant : tenants_) all.insert(all.end(), tenant->granted.begin(), tenant->granted.end());
    return all;
  };
  const auto first = sizes(1);
  EXPECT_EQ(first, sizes(1));
  EXPECT_NE(first, sizes(2));
}

TEST_F(PlannedTest, OptTakesTheTableItIsGiven) {
  ArbiterOptions options = unscheduled();
  // What no forecast would say: the first two are best, and at this ratio alone.
  options.plan.planners = research::lab_planners({.seed = 1, .profits = {{"BS", "TEA", 2, 6, 0.9, 0.95}}});
  make(PlanningMode::kOpt, options);
  for (const int kind : {kPc, kBs, kTea, kSad}) join(kind);
  run_for(2 * kMillisecond);  // it is believed until it proves wrong
  const PlanState state = core_->plan();
  ASSERT_EQ(state.plan.size(), 2u);
  EXPECT_EQ(state.plan[0].kernel, "BS");
  EXPECT_EQ(state.plan[0].vgpu, "BS");
  EXPECT_EQ(state.plan[0].resident, 2);
  EXPECT_EQ(state.plan[1].kernel, "TEA");
  EXPECT_EQ(state.plan[1].resident, 6);
}

// What a runner that has been taken over describes, asks and answers is anything; its neighbours go on.
TEST_F(PlannedTest, NonsenseInDescriptorsHarmsNobodyElse) {
  for (const PlanningMode mode : kPlanned) {
    make(mode);
    PlannedTenant &one = join(kPc), &two = join(kTea);
    EngineShares shares;
    shares.fill({.percent = 30, .reservation = 0, .cap = 100, .priority = 0});
    ASSERT_TRUE(core_->add("mad", shares, now_).ok());
    core_->set_sharing("mad", Sharing::kMps);
    core_->run(now_);
    auto grant_page = std::make_unique<GrantPage>();
    core_->attach("mad", grant_page.get(), now_);
    std::mt19937_64 random(7);
    for (int i = 0; i < 4000; ++i) {
      const uint32_t slot = static_cast<uint32_t>(random() % 4);
      Gate& gate = grant_page->gates[slot][0];
      KernelDescriptor descriptor = this->descriptor(one);
      uint32_t words[sizeof(KernelDescriptor) / 4];
      std::memcpy(words, &descriptor, sizeof words);
      for (uint64_t changes = random() % 4; changes > 0; --changes) {
        words[random() % std::size(words)] = random() % 2 ? static_cast<uint32_t>(random()) : random() % 3;
      }
      std::memcpy(static_cast<void*>(&descriptor), words, sizeof words);
      descriptor.call = random() % 3;
      descriptor.shape = random() % 200;
      descriptor.asked = gate.asked + 1;
      write_descriptor(grant_page->kernel_descriptors[slot], descriptor);
      if (random() % 16 == 0) grant_page->kernel_descriptors[slot].version = static_cast<uint32_t>(random());
      if (random() % 2) ++gate.asked;
      if (random() % 2) gate.ended += static_cast<uint32_t>(random() % 3);
      if (random() % 4 == 0) gate.busy_ns = random();
      set_pending(*grant_page, slot);
      core_->on_pending("mad", now_);
      next_ = core_->run(now_);
      run_for(2 * kStep);
    }
    EXPECT_GT(core_->plan().refused, 0u);
    EXPECT_LE(core_->plan().shapes, 2 * CoPlanner::kShapesMost + 2);
    one.done = two.done = 0;
    run_for(kSecond);
    EXPECT_GT(one.done * one.block_ns, 0.2 * kSecond) << to_text(mode);
    EXPECT_GT(two.done * two.block_ns, 0.2 * kSecond) << to_text(mode);
    core_.reset();
  }
}

}  // namespace
}  // namespace bandsaw
