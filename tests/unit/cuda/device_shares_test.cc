// The device as a whole against a memory share, on a driver of our own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "backend/device/device.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/cuda/fake_driver.h"
#include "tests/unit/cuda/fake_host.h"

namespace bandsaw::cuda {
namespace {

constexpr int64_t kContext = 520 * kMiB;

class DeviceSharesTest : public ::testing::Test {
 protected:
  DeviceSharesTest() {
    device_ = new_fake_device(&host_);
    fake_gpu() = {};
    EXPECT_EQ(host_.charged, 0) << "made ahead, for nobody yet";
    EXPECT_EQ(device_->context_create(0, &context_), CUDA_SUCCESS);
    EXPECT_EQ(host_.charged, kContext);
  }
  ~DeviceSharesTest() override {
    context_.reset();
    device_.reset();
    EXPECT_EQ(host_.charged, 0) << "memory left behind";
    EXPECT_EQ(host_.poisonings, 0);
  }

  static CUresult wait_for(const std::function<void(Done)>& begin) {
    std::promise<CUresult> result;
    begin([&](CUresult outcome) { result.set_value(outcome); });
    return result.get_future().get();
  }
  int64_t beyond_context() const { return host_.charged - kContext; }
  StreamRef legacy() { return device_->stream_legacy(context_); }

  FakeHost host_;
  std::unique_ptr<Device> device_;
  ContextRef context_;
};

TEST(DeviceReach, AGpuThatReachesAllMemoryIsRefusedUnlessAllowed) {
  constexpr const char* kAllow = "BANDSAW_ALLOW_PAGEABLE_ACCESS";
  fake_gpu() = {};
  fake_gpu().reaches_all = 1;
  FakeHost host;
  DeviceConfig config;
  config.window_base = VGPU_WINDOW_BASE_0;
  const auto refused = make_fake_device(config, &host);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), EPERM);
  for (const char* word : {"HMM", "ATS", "uvm_disable_hmm=1", kAllow}) {
    EXPECT_NE(refused.status().message().find(word), std::string::npos) << refused.status().message();
  }
  ::setenv(kAllow, "1", 1);
  EXPECT_TRUE(make_fake_device(config, &host).ok());
  ::unsetenv(kAllow);
  fake_gpu() = {};
}

TEST_F(DeviceSharesTest, ContextsCountFromTheMomentTheGuestHasThem) {
  ContextRef second, third;
  host_.share = 2 * kContext;
  EXPECT_EQ(device_->context_create(0, &second), CUDA_SUCCESS);
  EXPECT_EQ(device_->context_create(0, &third), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_gpu().contexts, 1);
  EXPECT_EQ(device_->context_destroy(second), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 0);
  EXPECT_EQ(device_->context_destroy(context_), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 0) << "the first one is held until its process goes";
  EXPECT_EQ(device_->context_create(0, &third), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 0);
}

TEST_F(DeviceSharesTest, PlainAndManagedMemory) {
  uint64_t address = 0;
  EXPECT_EQ(device_->memory_alloc(context_, 3 * kMiB, &address), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 4 * kMiB);
  EXPECT_EQ(device_->memory_alloc(context_, uint64_t{1} << 62, &address), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(wait_for([&](Done done) { device_->memory_free(address, done); }), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 0);
  host_.share = kContext + 10 * kMiB;
  EXPECT_EQ(device_->managed_add(context_, 0x200000000000, 10 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(device_->managed_add(context_, 0x200010000000, 4096), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(wait_for([&](Done done) { device_->managed_remove(0x200000000000, done); }), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 0);
  EXPECT_EQ(wait_for([&](Done done) { device_->managed_remove(0x200000000000, done); }), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceSharesTest, LimitsAreMemory) {
  const auto set = [&](CUlimit limit, uint64_t value) { return device_->context_set_limit(context_, limit, value); };
  EXPECT_EQ(set(CU_LIMIT_MALLOC_HEAP_SIZE, 108 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 100 * kMiB);
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 120 * kMiB);  // 20,480 threads
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 512 << 10), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set(CU_LIMIT_MALLOC_HEAP_SIZE, ~uint64_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(beyond_context(), 120 * kMiB);
  EXPECT_EQ(set(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 0);
}

TEST_F(DeviceSharesTest, PoolsMakeRoom) {
  host_.share = kContext + 100 * kMiB;
  uint64_t address = 0, plain = 0;
  EXPECT_EQ(device_->memory_alloc_async(legacy(), nullptr, 101 * kMiB, &address), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device_->memory_alloc_async(legacy(), nullptr, 90 * kMiB, &address), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 90 * kMiB);
  EXPECT_EQ(device_->memory_free_async(legacy(), address), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 90 * kMiB) << "the pool keeps it";
  EXPECT_EQ(device_->memory_alloc(context_, 50 * kMiB, &plain), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 50 * kMiB);
  EXPECT_EQ(wait_for([&](Done done) { device_->memory_free(plain, done); }), CUDA_SUCCESS);
}

TEST_F(DeviceSharesTest, GraphsHaveTheirMemoryBeforeTheyRun) {
  GraphRef graph;
  ExecRef exec;
  NodeRef node;
  NodeContent content;
  uint64_t address = 0;
  content.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  content.bytes = 1;
  ASSERT_EQ(device_->graph_create(&graph), CUDA_SUCCESS);
  ASSERT_EQ(device_->graph_add_node(graph, {}, content, &node, &address), CUDA_SUCCESS);
  ASSERT_EQ(device_->graph_instantiate(context_, graph, 0, &exec), CUDA_SUCCESS);
  host_.share = kContext + 100 * kMiB;
  fake_gpu().graph_needs = 101 * kMiB;
  EXPECT_EQ(device_->exec_launch(exec, legacy()), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_gpu().graph_launches, 0);
  EXPECT_EQ(beyond_context(), 0);
  fake_gpu().graph_needs = 60 * kMiB;
  const int uploads = fake_gpu().uploads;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(device_->exec_launch(exec, legacy()), CUDA_SUCCESS);
  EXPECT_EQ(fake_gpu().uploads, uploads + 1) << "what is mapped stays mapped";
  EXPECT_EQ(beyond_context(), 60 * kMiB);
  uint64_t plain = 0;
  EXPECT_EQ(device_->memory_alloc(context_, 50 * kMiB, &plain), CUDA_SUCCESS) << "graphs make room";
  EXPECT_EQ(beyond_context(), 50 * kMiB);
  EXPECT_EQ(wait_for([&](Done done) { device_->memory_free(plain, done); }), CUDA_SUCCESS);
  EXPECT_EQ(device_->exec_launch(exec, legacy()), CUDA_SUCCESS);
  EXPECT_EQ(fake_gpu().uploads, uploads + 2);
}

TEST_F(DeviceSharesTest, CodeAndWhatItNeeds) {
  const std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry kernel() { ret; }\n";
  ModuleRef module;
  FunctionRef function;
  FunctionInfo info;
  std::string log;
  host_.share = kContext + 40 * kMiB;
  ASSERT_EQ(device_->module_load(context_, std::as_bytes(std::span(text)), &module, &log), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), static_cast<int64_t>(text.size()));
  ASSERT_EQ(device_->module_function(module, "kernel", &function), CUDA_SUCCESS);
  fake_gpu().local_bytes = 2048;
  EXPECT_EQ(device_->function_info({nullptr, function}, &info), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), static_cast<int64_t>(text.size()) + 20 * kMiB);
  EXPECT_EQ(device_->function_info({nullptr, function}, &info), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), static_cast<int64_t>(text.size()) + 20 * kMiB) << "one for all kernels";
  fake_gpu().local_bytes = 1 << 20;
  EXPECT_EQ(device_->function_info({nullptr, function}, &info), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device_->module_unload(module), CUDA_SUCCESS);
  EXPECT_EQ(beyond_context(), 20 * kMiB);
  MemoryRef memory;
  vgpu_memory_props made{};
  EXPECT_EQ(device_->memory_create({}, 22 * kMiB, &memory, &made), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device_->memory_create({}, 20 * kMiB, &memory, &made), CUDA_SUCCESS);
  memory.reset();
}

}  // namespace
}  // namespace bandsaw::cuda
