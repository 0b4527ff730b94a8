// What holds for every mode and every order of events: each block of a call goes out exactly once, in linear order,
// and no call that is ready is left lying while nothing is in flight.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tools/benchmarks/research/planning/make_planner.h"
#include "vgpu-sched/slice/coscheduler.h"

namespace bandsaw::slice {
namespace {

class Chaos {
 public:
  Chaos(const std::string& mode, std::uint64_t seed) : random_(seed), model_(GpuModel{}), meter_(model_) {
    for (int i = 0; i < 12; ++i) {
      KernelProfile profile{.needs = {.threads = 32 << (random_() % 6), .registers = static_cast<int>(random_() % 64)},
                            .block_ns = 5.0 + static_cast<double>(random_() % 200),
                            .memory = 0.01 * static_cast<double>(random_() % 40)};
      shapes_.push_back(model_.add(profile));
    }
    scheduler_ = std::make_unique<CoScheduler>(
        research::make_planner(mode, model_, {.wait_limit = 1000 * kMicrosecond}, &model_), &meter_);
  }

  void run(int events) {
    for (int i = 0; i < events && !testing::Test::HasFailure(); ++i) {
      now_ += static_cast<Time>(random_() % 2000);
      event();
      pump();
    }
    while (!calls_.empty() && !testing::Test::HasFailure()) {  // let all of it end
      for (auto& [id, call] : calls_) {
        if (!call.copied) {
          ASSERT_EQ(scheduler_->copies_done(id, now_), Error::kNone);
        }
        call.copied = true;
      }
      pump();
      ASSERT_FALSE(flying_.empty()) << "calls are left, and nothing is in flight";
      end_grid_slice(0);
    }
    EXPECT_EQ(scheduler_->queues().waiting(), 0u);
    EXPECT_TRUE(scheduler_->queues().ready().empty());
    EXPECT_GT(ended_, events / 50);
  }

 private:
  struct Known {
    Blocks blocks;
    Blocks issued = 0;
    Blocks done = 0;
    bool copied;
    int slices = 0;
  };
  struct GridSlice {
    KernelId id;
    Range range;
  };

  void event() {
    const auto dice = random_() % 100;
    if (dice < 30 && calls_.size() < 40) {
      arrive();
    } else if (dice < 40 && !calls_.empty()) {
      const KernelId id = any();
      EXPECT_EQ(scheduler_->copies_done(id, now_), Error::kNone);
      calls_.at(id).copied = true;
    } else if (dice < 43 && !calls_.empty()) {
      const KernelId id = any();
      EXPECT_EQ(scheduler_->departure(id, now_), Error::kNone);
      calls_.erase(id);
      std::erase_if(flying_, [id](const GridSlice& slice) { return slice.id == id; });
    } else if (dice < 46) {
      EXPECT_NE(scheduler_->grid_slice_done(random_(), random_(), now_), Error::kNone);
      EXPECT_NE(scheduler_->departure(~KernelId{0}, now_), Error::kNone);
    } else if (dice < 48) {
      scheduler_->replan();
      const ShapeId shape = shapes_[random_() % shapes_.size()];
      KernelProfile profile = model_.fit(shape)->profile;
      profile.block_ns *= 0.5 + static_cast<double>(random_() % 100) / 100;
      EXPECT_EQ(model_.update(shape, profile), Error::kNone);
    } else if (dice < 52 && !flying_.empty()) {
      const GridSlice& slice = flying_[random_() % flying_.size()];
      EXPECT_EQ(scheduler_->progress(slice.id, random_() % 100000), Error::kNone);
    } else if (!flying_.empty()) {
      end_grid_slice(random_() % flying_.size());
    }
  }

  void arrive() {
    const KernelId id = next_++;
    const Blocks blocks = random_() % 3 == 0 ? random_() % 100 + 1 : random_() % 20000 + 1;
    Call call{.id = id, .stream = random_() % 20, .shape = shapes_[random_() % shapes_.size()], .blocks = blocks};
    if (random_() % 10 == 0) call.shape = kNoShape;
    if (random_() % 10 != 0) call.minimum = std::min<Blocks>(blocks, 132 * (random_() % 100 + 1));
    call.copied = random_() % 2 == 0;
    EXPECT_EQ(scheduler_->arrival(call, now_), Error::kNone);
    EXPECT_EQ(scheduler_->arrival(call, now_), Error::kKnownKernel);
    calls_[id] = {.blocks = blocks, .copied = call.copied};
  }

  void pump() {
    while (const auto issue = scheduler_->next(now_)) {
      ASSERT_TRUE(calls_.contains(issue->kernel));
      Known& call = calls_.at(issue->kernel);
      ASSERT_TRUE(call.copied);
      if (issue->kind == Issue::Kind::kPersistent) {
        ASSERT_GT(call.slices, 0);
        ASSERT_GT(issue->resident, 0);
        continue;
      }
      ASSERT_EQ(issue->range.first, call.issued);
      ASSERT_GT(issue->range.blocks, 0u);
      call.issued += issue->range.blocks;
      ASSERT_LE(call.issued, call.blocks);
      ASSERT_LE(++call.slices, 2);
      flying_.push_back({issue->kernel, issue->range});
    }
    const bool any_ready = !scheduler_->queues().ready().empty();
    ASSERT_EQ(any_ready, !flying_.empty());
  }

  void end_grid_slice(std::size_t index) {
    const GridSlice slice = flying_[index];
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(index));
    Known& call = calls_.at(slice.id);
    bool over = false;
    ASSERT_EQ(scheduler_->grid_slice_done(slice.id, slice.range.first, now_, &over), Error::kNone);
    call.done += slice.range.blocks;
    --call.slices;
    ASSERT_EQ(over, call.done == call.blocks);
    if (!over) return;
    calls_.erase(slice.id);
    ++ended_;
  }

  KernelId any() { return std::next(calls_.begin(), static_cast<std::ptrdiff_t>(random_() % calls_.size()))->first; }

  std::mt19937_64 random_;
  CoRunModel model_;
  SpeedMeter meter_;
  std::vector<ShapeId> shapes_;
  std::unique_ptr<CoScheduler> scheduler_;
  std::map<KernelId, Known> calls_;
  std::vector<GridSlice> flying_;
  KernelId next_ = 1;
  Time now_ = 0;
  int ended_ = 0;
};

class Property : public testing::TestWithParam<const char*> {};

TEST_P(Property, EveryBlockGoesOutOnce) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Chaos chaos(GetParam(), seed);
    chaos.run(100000 / 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Property,
                         testing::Values("time-sliced", "mps", "consolidation", "slices-fifo", "kernelet", "random",
                                         "persistent-greedy", "opt"),
                         [](const auto& mode) {
                           std::string name = mode.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace bandsaw::slice
