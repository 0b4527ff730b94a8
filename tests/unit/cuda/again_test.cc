// What a process on a GPU has, given again in another one, on a driver of our own.
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "backend/device/cuda/code_variables.h"
#include "backend/device/gives_again.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/cuda/fake_driver.h"
#include "tests/unit/cuda/fake_host.h"

namespace bandsaw::cuda {
namespace {

constexpr const char kCode[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 counter;\n"
    ".const .align 4 .u32 seven;\n.visible .entry run() { ret; }\n";

Given::Bytes image() {
  const auto bytes = std::as_bytes(std::span(kCode));
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

class CudaAgain : public ::testing::Test {
 protected:
  CudaAgain() { begin(); }
  ~CudaAgain() override { end(); }
  void end() {
    context_.reset();
    device_.reset();
    EXPECT_EQ(host_.charged, 0) << "memory left behind";
  }
  // A process that has nothing; what variables there are the GPU forgets.
  void begin() {
    device_ = new_fake_device(&host_, true);
    EXPECT_EQ(device_->context_create(0, &context_), CUDA_SUCCESS);
  }
  uint64_t allocate(uint64_t bytes, Given* given) {
    const Given::Scope scope(given);
    uint64_t address = 0;
    EXPECT_EQ(device_->memory_alloc(context_, bytes, &address), CUDA_SUCCESS);
    return address;
  }
  void free(uint64_t address) {
    std::promise<CUresult> result;
    device_->memory_free(address, [&](CUresult outcome) { result.set_value(outcome); });
    EXPECT_EQ(result.get_future().get(), CUDA_SUCCESS);
  }
  std::vector<CodeAgain> load() {
    ModuleRef module;
    std::string log;
    EXPECT_EQ(device_->module_load(context_, *image(), &module, &log), CUDA_SUCCESS) << log;
    uint64_t address = 0, bytes = 0;
    EXPECT_EQ(device_->module_global(module, "counter", &address, &bytes), CUDA_SUCCESS);
    return {{.code = module, .image = image(), .variables = {}}};
  }
  static void place_variables(CUdeviceptr address) {
    fake_gpu().variables = {{"counter", {address, 0}}, {"seven", {address + 0x100, 0}}};
  }
  GivesAgain& again() { return *device_->gives_again(); }
  std::vector<std::byte> bytes_away() {
    std::vector<std::byte> all;
    const auto away = device_->memory_away();
    EXPECT_TRUE(away.has_value());
    for (const AwayMemory& one : *away) all.insert(all.end(), one.pages.begin(), one.pages.end());
    return all;
  }
  void fill_away(const std::vector<std::byte>& bytes) {
    size_t at = 0;
    const auto away = device_->memory_away();
    for (const AwayMemory& one : *away) {
      ASSERT_LE(at + one.pages.size(), bytes.size());
      std::memcpy(one.pages.data(), bytes.data() + at, one.pages.size());
      at += one.pages.size();
    }
    EXPECT_EQ(at, bytes.size());
  }

  FakeHost host_;
  std::unique_ptr<Device> device_;
  ContextRef context_;
};

TEST_F(CudaAgain, MemoryHasTheAddressesThatItHad) {
  Given first, second, third;
  const uint64_t gone = allocate(3 * kMiB, nullptr), small = allocate(1000, nullptr);
  const uint64_t large = allocate(5 * kMiB, &first), tiny = allocate(100, &second), other = allocate(2000, &third);
  free(gone);
  free(small);
  EXPECT_EQ(first.numbers(), std::vector<uint64_t>{large});
  EXPECT_TRUE(again().has_memory(large) && again().has_memory(tiny) && !again().has_memory(small));
  EXPECT_TRUE(again().reaches(large + 100, 1 * kMiB) && !again().reaches(gone, 1));
  EXPECT_EQ(again().not_given(), "");
  free(large);
  free(tiny);
  free(other);
  end();
  begin();
  for (const auto& [address, bytes] : {std::pair{other, 2000}, {large, 5 * kMiB}, {tiny, 100}}) {
    Given given({address}, nullptr);
    EXPECT_EQ(allocate(bytes, &given), address);
    EXPECT_TRUE(given.all_given());
  }
  Given taken({large}, nullptr);
  const Given::Scope scope(&taken);
  uint64_t address = 0;
  EXPECT_EQ(device_->memory_alloc(context_, 100, &address), CUDA_ERROR_INVALID_VALUE) << "somebody has it";
  EXPECT_EQ(device_->memory_alloc(context_, 4 * kMiB, &address), CUDA_ERROR_INVALID_VALUE);
  for (const uint64_t one : {large, tiny, other}) free(one);
}

TEST_F(CudaAgain, VariablesAndCreatedMemoryGoAlongWithTheirContents) {
  place_variables(0x7e0000001000);
  std::vector<CodeAgain> code = load();
  MemoryRef memory;
  vgpu_memory_props made{};
  EXPECT_EQ(device_->memory_create({}, 4 * kMiB, &memory, &made), CUDA_SUCCESS);
  uint64_t bytes = 0;
  const uint64_t key = again().memory_key(memory, &bytes);
  EXPECT_TRUE(key != 0 && bytes == 4 * kMiB);
  fake_gpu().memory.rbegin()->second.content = 5;
  fake_gpu().variables["counter"].content = 8;
  fake_gpu().variables["seven"].content = 7;
  EXPECT_EQ(device_->memory_leave(), CUDA_SUCCESS);
  ASSERT_EQ(again().take_along(code), "");
  ASSERT_EQ(code[0].variables.size(), 2u);
  EXPECT_EQ(code[0].variables[1].name, "seven");
  const auto saved = bytes_away();
  EXPECT_EQ(saved.size(), 4096u + 4 * kMiB);
  const auto mapped = fake_gpu().mapped.size();
  EXPECT_EQ(device_->memory_return(), CUDA_SUCCESS);
  EXPECT_EQ(bytes_away().size(), 0u) << "it is there again";
  EXPECT_EQ(fake_gpu().mapped.size(), mapped);
  const std::vector<VariableAgain> variables = code[0].variables;
  code.clear();
  memory.reset();
  end();

  begin();
  place_variables(0x7e0000001000);
  EXPECT_EQ(again().memory_make(key, 4 * kMiB, &memory), CUDA_SUCCESS);
  MemoryRef twice;
  EXPECT_EQ(again().memory_make(key, 4 * kMiB, &twice), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(again().memory_make(4096, 4 * kMiB, &twice), CUDA_ERROR_INVALID_VALUE);
  code = load();
  code[0].variables = variables;
  ASSERT_TRUE(again().expect_along(code).ok());
  EXPECT_EQ(device_->memory_leave(), CUDA_SUCCESS);
  fill_away(saved);
  EXPECT_EQ(device_->memory_return(), CUDA_SUCCESS);
  EXPECT_EQ(fake_gpu().variables["counter"].content, 8);
  EXPECT_EQ(fake_gpu().variables["seven"].content, 7);
  EXPECT_EQ(fake_gpu().memory.rbegin()->second.content, 5);
}

TEST_F(CudaAgain, AVariableThatLiesElsewhereIsNamed) {
  place_variables(0x7e0000002000);
  std::vector<CodeAgain> code = load();
  code[0].variables = {{"counter", 0x7e0000001000, 4}, {"seven", 0x7e0000002100, 4}};
  const Status status = again().expect_along(code);
  EXPECT_EQ(status.code(), EADDRINUSE);
  EXPECT_NE(status.message().find("1 variables lie elsewhere now, the first: variable counter"), std::string::npos)
      << status.message();
  EXPECT_EQ(bytes_away().size(), 0u);
}

TEST_F(CudaAgain, AVariableIsNotedOnceAndMustLieThereAgain) {
  place_variables(0x7e0000001000);
  ModuleRef module;
  std::string log;
  ASSERT_EQ(device_->module_load(context_, *image(), &module, &log), CUDA_SUCCESS);
  const auto ask = [&](Given* given) {
    const Given::Scope scope(given);
    uint64_t address = 0, bytes = 0;
    return device_->module_global(module, "counter", &address, &bytes);
  };
  Given first, second;
  EXPECT_EQ(ask(&first), CUDA_SUCCESS);
  EXPECT_EQ(ask(&second), CUDA_SUCCESS);
  EXPECT_EQ(first.numbers(), std::vector<uint64_t>{0x7e0000001000});
  EXPECT_TRUE(second.numbers().empty());
  EXPECT_TRUE(again().has_memory(0x7e0000001000));
  Given same({0x7e0000001000}, nullptr), other({0x7e0000009000}, nullptr);
  EXPECT_EQ(ask(&same), CUDA_SUCCESS);
  EXPECT_TRUE(same.all_given());
  EXPECT_TRUE(again().expect_along({}).ok());
  EXPECT_EQ(ask(&other), CUDA_SUCCESS);
  EXPECT_EQ(again().expect_along({}).code(), EADDRINUSE);
  module.reset();
  EXPECT_FALSE(again().has_memory(0x7e0000001000));
}

TEST_F(CudaAgain, WhatTheDriverPlacesByChanceIsRefusedByName) {
  ContextRef other;
  EXPECT_EQ(device_->context_create(0, &other), CUDA_SUCCESS);
  EXPECT_EQ(again().not_given(), "contexts beside its first on a GPU");
  EXPECT_EQ(device_->context_destroy(other), CUDA_SUCCESS);
  other.reset();
  EXPECT_EQ(again().not_given(), "");
}

TEST_F(CudaAgain, StreamsThatComeAndGoAreTheSameOnes) {
  const int before = fake_gpu().streams;
  for (int i = 0; i < 100; ++i) {
    StreamRef stream;
    EXPECT_EQ(device_->stream_create(context_, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    EXPECT_EQ(device_->stream_destroy(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(fake_gpu().streams, before);
}

TEST(CodeVariables, OfPtxAreAllThatItDefines) {
  CodeVariables found;
  ASSERT_TRUE(list_variables(*image(), 90, &found));
  EXPECT_EQ(found.names, (std::vector<std::string>{"counter", "seven"}));
  EXPECT_FALSE(found.machine_code || found.allocates || found.keeps_functions);
  const std::string calls = std::string(kCode) + "  // malloc, .callprototype";
  ASSERT_TRUE(list_variables(std::as_bytes(std::span(calls)), 90, &found));
  EXPECT_TRUE(found.allocates && found.keeps_functions);
  EXPECT_FALSE(list_variables(std::as_bytes(std::span("no code")), 90, &found));
}

TEST(CudaNotAgain, WithoutTheOptionThereIsNone) {
  FakeHost host;
  const auto device = new_fake_device(&host);
  EXPECT_EQ(device->gives_again(), nullptr);
}

}  // namespace
}  // namespace bandsaw::cuda
