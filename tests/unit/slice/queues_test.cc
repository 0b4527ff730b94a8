#include "vgpu-sched/slice/queues.h"

#include <gtest/gtest.h>

#include "vgpu-sched/slice/coscheduler.h"

namespace bandsaw::slice {
namespace {

TEST(Queues, ReadyWhenTheStreamsCopiesAndKernelsAreDone) {
  Queues queues;
  EXPECT_EQ(queues.arrival({.id = 1, .stream = 7, .blocks = 100, .copied = false}, 0), Error::kNone);
  EXPECT_EQ(queues.arrival({.id = 2, .stream = 7, .blocks = 50}, 1), Error::kNone);
  EXPECT_EQ(queues.arrival({.id = 3, .stream = 8, .blocks = 10}, 2), Error::kNone);
  ASSERT_EQ(queues.ready().size(), 1u);
  EXPECT_EQ(queues.ready()[0].id, 3u);
  EXPECT_EQ(queues.waiting(), 2u);
  EXPECT_EQ(queues.copies_done(1, 5), Error::kNone);
  ASSERT_EQ(queues.ready().size(), 2u);
  EXPECT_EQ(queues.ready()[1].id, 1u);
  EXPECT_EQ(queues.ready()[1].ready_since, 5);
  EXPECT_EQ(queues.take(2, 10).blocks, 0u);  // behind 1
  EXPECT_EQ(queues.take(1, 60).first, 0u);
  EXPECT_EQ(queues.take(1, 60).blocks, 40u);
  bool over = false;
  EXPECT_EQ(queues.grid_slice_done(1, 60, 6, &over), Error::kNone);
  EXPECT_FALSE(over);
  EXPECT_EQ(queues.grid_slice_done(1, 60, 6, &over), Error::kUnknownGridSlice);
  EXPECT_EQ(queues.grid_slice_done(1, 0, 7, &over), Error::kNone);
  EXPECT_TRUE(over);
  EXPECT_EQ(queues.find_ready(2)->ready_since, 7);
  EXPECT_EQ(queues.departure(2, 8), Error::kNone);
  EXPECT_EQ(queues.departure(2, 8), Error::kUnknownKernel);
}

TEST(Queues, RefusesWhatCannotBe) {
  Queues queues;
  EXPECT_EQ(queues.arrival({.id = 1, .stream = 1, .blocks = 0}, 0), Error::kNoBlocks);
  EXPECT_EQ(queues.arrival({.id = 1, .stream = 1, .blocks = 1}, 0), Error::kNone);
  EXPECT_EQ(queues.arrival({.id = 1, .stream = 2, .blocks = 1}, 0), Error::kKnownKernel);
  EXPECT_EQ(queues.copies_done(9, 0), Error::kUnknownKernel);
  EXPECT_EQ(queues.progress(9, 0), Error::kUnknownKernel);
  EXPECT_EQ(queues.grid_slice_done(9, 0, 0, nullptr), Error::kUnknownKernel);
  EXPECT_EQ(queues.progress(1, 1000), Error::kNone);
  EXPECT_EQ(queues.ready()[0].done, 0u);  // none of it was issued
}

}  // namespace
}  // namespace bandsaw::slice
