// Contexts on a part of the GPU's SMs, on a driver of our own that has 20 of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <span>

#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/cuda/fake_driver.h"
#include "tests/unit/cuda/fake_host.h"

namespace bandsaw::cuda {
namespace {

class PartitionTest : public testing::Test {
 protected:
  PartitionTest() { fake_gpu() = {}; }
  ~PartitionTest() override {
    contexts_.clear();
    device_.reset();
    EXPECT_EQ(host_.charged, 0) << "memory left behind";
    EXPECT_EQ(host_.poisonings, 0);
  }
  Result<std::unique_ptr<Device>> make(uint32_t first, uint32_t groups) {
    DeviceConfig config;
    config.window_base = VGPU_WINDOW_BASE_0;
    config.sm_step = 8;
    config.sm_first = first;
    config.sm_groups = groups;
    return make_fake_device(config, &host_);
  }
  void start(uint32_t first, uint32_t groups) {
    auto made = make(first, groups);
    ASSERT_TRUE(made.ok()) << made.status().message();
    device_ = std::move(made.value());
  }
  std::string refusal(uint32_t first, uint32_t groups) {
    const auto made = make(first, groups);
    return made.ok() ? "" : made.status().message();
  }
  int sms() {
    const auto info = std::make_unique<vgpu_device_info>();
    device_->info(info.get());
    return info->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  }
  // The guest has one more context.
  void create() { ASSERT_EQ(device_->context_create(0, &contexts_.emplace_back()), CUDA_SUCCESS); }
  void destroy(size_t which) {
    ASSERT_EQ(device_->context_destroy(contexts_[which]), CUDA_SUCCESS);
    contexts_.erase(contexts_.begin() + static_cast<ptrdiff_t>(which));
  }

  FakeHost host_;
  std::unique_ptr<Device> device_;
  std::vector<ContextRef> contexts_;
};

TEST_F(PartitionTest, HasTheGroupsThatItIsTold) {
  const uint32_t parts[][3] = {{0, 1, 8}, {1, 1, 8}, {0, 2, 16}, {1, 0, 12}, {2, 0, 4}, {0, 0, 20}};
  for (const auto& [first, groups, count] : parts) {
    start(first, groups);
    EXPECT_EQ(fake_gpu().green_sms, count);
    EXPECT_EQ(sms(), static_cast<int>(count)) << "what the guest sees";
    device_.reset();
    fake_gpu() = {};
  }
}

TEST_F(PartitionTest, WhatTheGpuDoesNotHaveIsRefused) {
  EXPECT_NE(refusal(2, 1).find("groups 2 to 3"), std::string::npos);
  EXPECT_NE(refusal(3, 0), "");
  EXPECT_NE(refusal(~0u, ~0u), "");
  fake_gpu().sms = 16;
  EXPECT_NE(refusal(2, 0).find("none are left"), std::string::npos);
  fake_gpu().sms = 0;
  EXPECT_NE(refusal(0, 1).find("cannot split"), std::string::npos);
  fake_gpu().sms = 20;
  fake_gpu().failures = 1;
  EXPECT_NE(refusal(0, 1).find("a context on 8 SMs"), std::string::npos);
}

TEST_F(PartitionTest, FurtherContextsLieBesideTheFirst) {
  start(0, 1);
  EXPECT_EQ(fake_gpu().greens, 1) << "made ahead";
  create();
  EXPECT_EQ(host_.charged, 520 * kMiB);
  create();
  EXPECT_EQ(host_.charged, 536 * kMiB);
  EXPECT_EQ(fake_gpu().greens, 2);
  EXPECT_EQ(fake_gpu().contexts, 0) << "a plain one would have all SMs";
  fake_gpu().failures = 1;
  EXPECT_EQ(device_->context_create(0, &contexts_.emplace_back()), CUDA_ERROR_OUT_OF_MEMORY);
  contexts_.pop_back();
  EXPECT_EQ(host_.charged, 536 * kMiB);
  destroy(1);
  EXPECT_EQ(fake_gpu().greens, 1);
  destroy(0);
  EXPECT_EQ(host_.charged, 520 * kMiB) << "what it takes of the GPU stays";
  EXPECT_EQ(fake_gpu().primaries, 1) << "kept until it is needed again";
}

TEST_F(PartitionTest, AnEndedPrimaryContextIsMadeAnew) {
  start(0, 1);
  create();
  destroy(0);
  create();
  EXPECT_EQ(fake_gpu().greens, 1);
  EXPECT_EQ(fake_gpu().primaries, 1);
  create();
  destroy(0);
  create();  // the other one holds the driver's primary context
  EXPECT_EQ(fake_gpu().greens, 2);
  EXPECT_EQ(fake_gpu().primaries, 1);
  for (const ContextRef& context : contexts_) {
    EXPECT_EQ(device_->context_set_limit(context, CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  }
  destroy(0);
  destroy(0);
  EXPECT_EQ(fake_gpu().greens, 1);
}

TEST_F(PartitionTest, WhatWasMadeWithAContextOutlivesItAndIsGivenBack) {
  const std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry kernel() { ret; }\n";
  start(0, 1);
  create();
  create();
  ModuleRef module;
  std::string log;
  ASSERT_EQ(device_->module_load(contexts_[1], std::as_bytes(std::span(text)), &module, &log), CUDA_SUCCESS);
  const int modules = fake_gpu().modules;
  destroy(1);
  EXPECT_EQ(fake_gpu().modules, modules);
  module.reset();
  EXPECT_EQ(fake_gpu().modules, modules - 1);
  destroy(0);
}

// The legacy stream stands for all but the streams that it does not order. A few of these are looked at beside it,
// which is cheaper than to wait for the context.
TEST_F(PartitionTest, AContextIsWaitedForByItsLegacyStreamAndTheFewThatAreApart) {
  start(0, 0);
  create();
  fake_gpu().streams = 0;
  std::array<StreamRef, 9> apart;
  for (StreamRef& stream : apart)
    ASSERT_EQ(device_->stream_create(contexts_[0], CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
  const StreamRef legacy = device_->stream_legacy(contexts_[0]);
  const auto waits_after = [&](std::span<const StreamRef> streams) {
    for (const StreamRef& stream : streams) EXPECT_EQ(device_->write_value(stream, 0, 0, 4, 0), CUDA_SUCCESS);
    const int before = fake_gpu().waits;
    std::promise<CUresult> result;
    device_->context_synchronize(contexts_[0], [&](CUresult outcome) { result.set_value(outcome); });
    EXPECT_EQ(result.get_future().get(), CUDA_SUCCESS);
    return fake_gpu().waits - before;
  };
  EXPECT_EQ(waits_after({&legacy, 1}), 0);
  EXPECT_EQ(waits_after(apart), 1) << "those that nobody has waited for may all have work";
  fake_gpu().calls.clear();
  fake_gpu().ready = false;
  EXPECT_EQ(waits_after(std::span(apart).first(6)), 0);
  fake_gpu().ready = true;
  EXPECT_EQ(std::ranges::count(fake_gpu().calls, "record c"), 1);
  EXPECT_EQ(waits_after(std::span(apart).first(2)), 0);
  EXPECT_EQ(waits_after({&legacy, 1}), 0);
}

// The end of a time slice may stand on a stream behind what the program waited for.
TEST_F(PartitionTest, AStreamThatWasWaitedForIsReady) {
  start(0, 0);
  create();
  StreamRef stream;
  ASSERT_EQ(device_->stream_create(contexts_[0], CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
  EXPECT_EQ(device_->write_value(stream, 0, 0, 4, 0), CUDA_SUCCESS);
  std::promise<CUresult> waited;
  device_->stream_synchronize(stream, [&](CUresult outcome) { waited.set_value(outcome); });
  EXPECT_EQ(waited.get_future().get(), CUDA_SUCCESS);
  fake_gpu().ready = false;
  EXPECT_EQ(device_->stream_query(stream), CUDA_SUCCESS);
  EXPECT_EQ(device_->stream_query(device_->stream_legacy(contexts_[0])), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(device_->write_value(stream, 0, 0, 4, 0), CUDA_SUCCESS);
  EXPECT_EQ(device_->stream_query(stream), CUDA_ERROR_NOT_READY);
  fake_gpu().ready = true;
}

// What it put on the GPU would wait for a time slice of this process.
TEST_F(PartitionTest, AWaitForWhatIsKnownToBeOverAsksTheGpuNothing) {
  device_ = new_fake_device(&host_);
  ASSERT_TRUE(device_);
  create();
  StreamRef blocking;
  ASSERT_EQ(device_->stream_create(contexts_[0], CU_STREAM_DEFAULT, 0, &blocking), CUDA_SUCCESS);
  const StreamRef legacy = device_->stream_legacy(contexts_[0]);
  const auto asks_after = [&](const StreamRef& stream) {
    const int before = fake_gpu().asked;
    std::promise<CUresult> waited;
    device_->stream_synchronize(stream, [&](CUresult outcome) { waited.set_value(outcome); });
    EXPECT_EQ(waited.get_future().get(), CUDA_SUCCESS);
    return fake_gpu().asked - before;
  };
  EXPECT_EQ(asks_after(legacy), 0);
  EXPECT_NE(asks_after(blocking), 0) << "it may be an old one of the stock";
  EXPECT_EQ(asks_after(blocking), 0);
  EXPECT_EQ(device_->write_value(blocking, 0, 0, 4, 0), CUDA_SUCCESS);
  EXPECT_NE(asks_after(legacy), 0);
  EXPECT_EQ(device_->write_value(legacy, 0, 0, 4, 0), CUDA_SUCCESS);
  EXPECT_EQ(asks_after(blocking), 0);
  EXPECT_NE(asks_after(legacy), 0);
}

// The driver's own order holds between the streams of a plain context only.
TEST_F(PartitionTest, TheLegacyStreamAndBlockingOnesAreKeptInOrder) {
  start(0, 1);
  create();
  fake_gpu().streams = 0;
  StreamRef blocking, apart;
  ASSERT_EQ(device_->stream_create(contexts_[0], CU_STREAM_DEFAULT, 0, &blocking), CUDA_SUCCESS);
  ASSERT_EQ(device_->stream_create(contexts_[0], CU_STREAM_NON_BLOCKING, 0, &apart), CUDA_SUCCESS);
  const StreamRef legacy = device_->stream_legacy(contexts_[0]);
  const auto put = [&](const StreamRef& stream) {
    fake_gpu().calls.clear();
    EXPECT_EQ(device_->write_value(stream, 0, 0, 4, 0), CUDA_SUCCESS);
    return fake_gpu().calls;
  };
  using Calls = std::vector<std::string>;
  EXPECT_EQ(put(blocking), Calls({"write a"}));
  EXPECT_EQ(put(legacy), Calls({"record a", "wait L", "write L"}));
  EXPECT_EQ(put(legacy), Calls({"write L"}));
  EXPECT_EQ(put(blocking), Calls({"record L", "wait a", "write a"}));
  EXPECT_EQ(put(blocking), Calls({"write a"}));
  EXPECT_EQ(put(apart), Calls({"write b"}));
  EXPECT_EQ(put(device_->stream_legacy(contexts_[0])), Calls({"record a", "wait L", "write L"})) << "another handle";
  put(blocking);
  fake_gpu().calls.clear();
  EXPECT_EQ(device_->stream_query(legacy), CUDA_SUCCESS);
  EXPECT_EQ(fake_gpu().calls, Calls({"record a", "wait L"}));
  put(blocking);
  fake_gpu().calls.clear();
  EXPECT_EQ(device_->stream_destroy(blocking), CUDA_SUCCESS);
  blocking = nullptr;
  EXPECT_EQ(fake_gpu().calls, Calls({"record a", "wait L"})) << "it is waited for although it has gone";
  EXPECT_EQ(put(legacy), Calls({"write L"}));
}

}  // namespace
}  // namespace bandsaw::cuda
