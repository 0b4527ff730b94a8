// Libraries, modules, variables, and what the device says about itself.
#include <sys/mman.h>

#include <cstring>

#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

void nothing(WarpState*) {}

Variable variable(const std::string& name, uint64_t bytes, std::vector<std::byte> initial = {}) {
  Variable made;
  made.name = name;
  made.bytes = bytes;
  made.align = 8;
  if (!initial.empty()) made.initial.push_back({0, std::move(initial)});
  return made;
}

TEST_F(SoftDeviceTest, CodeAndVariablesCountAgainstTheShare) {
  FakeModule module;
  module.kernels.push_back(fake_kernel("nothing", nothing));
  module.variables.push_back(variable("large", 1 << 20));
  const LibraryRef library = load(module);
  uint64_t at = 0, bytes = 0;
  for (const int64_t missing : {1ll << 20, 1ll}) {
    host.share = (1 << 20) + kFakeCodeBytes - missing;
    EXPECT_EQ(device->library_global(context, library, "large", &at, &bytes), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(host.charged, 0);
  }
  host.share = (1 << 20) + kFakeCodeBytes;
  EXPECT_EQ(device->library_global(context, library, "large", &at, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, host.share);
  EXPECT_EQ(device->library_unload(library), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 0);
}

TEST_F(SoftDeviceTest, VariablesHaveTheirValues) {
  FakeModule module;
  module.kernels.push_back(fake_kernel("nothing", nothing));
  module.variables.push_back(variable("number", 8, std::vector<std::byte>(8, std::byte{7})));
  module.variables.push_back(variable("zeroes", 1000));
  Variable table = variable("table", 16);
  table.pointers.push_back({0, "zeroes", 12, true});
  table.pointers.push_back({8, "nothing", 0, false});
  module.variables.push_back(table);
  const LibraryRef library = load(module);
  uint64_t number = 0, zeroes = 0, at = 0, bytes = 0;
  ASSERT_EQ(device->library_global(context, library, "number", &number, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 8u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(number), 0x0707070707070707u);
  ASSERT_EQ(device->library_global(context, library, "zeroes", &zeroes, &bytes), CUDA_SUCCESS);
  ASSERT_EQ(device->library_global(context, library, "table", &at, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<uint64_t*>(at)[0], zeroes + 12);
  EXPECT_EQ(reinterpret_cast<uint64_t*>(at)[1], reinterpret_cast<uint64_t>(&nothing));
  EXPECT_EQ(device->library_global(context, library, "absent", &at, &bytes), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(free(number), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(device->variable_around(context, zeroes + 999, &at, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(at, zeroes);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_EQ(device->variable_around(context, zeroes + 1000, &at, &bytes), CUDA_ERROR_NOT_FOUND);

  ContextRef other;
  ASSERT_EQ(device->context_create(0, &other), CUDA_SUCCESS);
  ASSERT_EQ(device->library_global(other, library, "number", &at, &bytes), CUDA_SUCCESS);
  EXPECT_NE(at, number);  // each context has its own
  EXPECT_EQ(host.charged, 2 * (4096 + kFakeCodeBytes) + context_bytes);
  EXPECT_EQ(device->library_unload(library), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, context_bytes);
}

// The program's pages at their own address.
std::shared_ptr<std::byte> pages_at(uint64_t address) {
  return {std::shared_ptr<void>(), reinterpret_cast<std::byte*>(address)};
}

TEST_F(SoftDeviceTest, ManagedVariables) {
  FakeModule module;
  module.kernels.push_back(fake_kernel("nothing", nothing));
  module.variables.push_back(variable("shared_word", 4, std::vector<std::byte>(4, std::byte{1})));
  module.variables.back().managed = true;
  const LibraryRef library = load(module);
  std::vector<ManagedVariable> managed;
  ASSERT_EQ(device->library_managed(library, &managed), CUDA_SUCCESS);
  ASSERT_EQ(managed.size(), 1u);
  KernelRef kernel;
  ASSERT_EQ(device->library_kernel(library, "nothing", &kernel), CUDA_SUCCESS);
  EXPECT_EQ(launch(legacy, kernel, 1, 1), CUDA_ERROR_NOT_SUPPORTED);  // bound nowhere
  const uint64_t at = test_window() + (2ull << 30);
  ASSERT_NE(
      ::mmap(reinterpret_cast<void*>(at), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
  EXPECT_EQ(device->library_bind_managed(library, "other", at, pages_at(at)), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(device->library_bind_managed(library, "shared_word", 4096, pages_at(4096)), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(device->library_bind_managed(library, "shared_word", at, pages_at(at)), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(at), 0x01010101u);  // at once: the program may read it before any launch
  *reinterpret_cast<uint32_t*>(at) = 7;
  ASSERT_EQ(launch(legacy, kernel, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(at), 7u);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
}

TEST_F(SoftDeviceTest, ModulesAndFunctions) {
  KernelCode code = fake_kernel("nothing", nothing, 12);
  code.parameters = {{0, 8}, {8, 4}};
  code.static_shared_bytes = 1024;
  code.max_threads = 256;
  code.registers = 40;
  set_fake_module({{code}, {variable("there", 32)}});
  const std::string text = ".version 9.0\n.target sm_90\n.address_size 64\n";
  ModuleRef module;
  std::string log;
  ASSERT_EQ(device->module_load(context, std::as_bytes(std::span(text)), &module, &log), CUDA_SUCCESS) << log;
  std::vector<std::string> names;
  ASSERT_EQ(device->module_function_names(module, &names), CUDA_SUCCESS);
  EXPECT_EQ(names, std::vector<std::string>{"nothing"});
  Code found;
  EXPECT_EQ(device->module_function(module, "absent", &found.function), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(device->module_function(module, "nothing", &found.function), CUDA_SUCCESS);
  FunctionInfo info;
  ASSERT_EQ(device->function_info(found, &info), CUDA_SUCCESS);
  EXPECT_EQ(info.info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], 256);
  EXPECT_EQ(info.info.attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES], 1024);
  EXPECT_EQ(info.info.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS], 40);
  EXPECT_EQ(info.info.attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION], 90);
  EXPECT_EQ(info.info.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 47 * 1024);
  EXPECT_EQ(info.parameters.size(), 2u);
  uint64_t there = 0, at = 0, bytes = 0;
  ASSERT_EQ(device->module_global(module, "there", &there, &bytes), CUDA_SUCCESS);
  ASSERT_EQ(device->variable_around(context, there + 31, &at, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(at, there);
  EXPECT_EQ(device->module_unload(module), CUDA_SUCCESS);
  EXPECT_EQ(device->variable_around(context, there, &at, &bytes), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(device->module_unload(module), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(SoftDeviceTest, WhatMayBeLaunchedHasRoomOnAnSm) {
  std::vector<KernelCode> kernels;
  for (uint32_t threads = 1; threads <= 1024; ++threads) {
    kernels.push_back(fake_kernel("of" + std::to_string(threads), nothing, 0));
    kernels.back().max_threads = threads;
    kernels.back().registers = 255;
  }
  kernels.push_back(fake_kernel("of_eight", nothing, 0));
  kernels.back().max_threads = 256;
  kernels.back().registers = 255;
  kernels.back().least_blocks = 8;
  kernels.push_back(fake_kernel("of_few", nothing, 0));
  kernels.back().registers = 255;
  kernels.back().most_registers = 40;
  set_fake_module({kernels, {}});
  const std::string text = ".version 9.0\n.target sm_90\n.address_size 64\n";
  ModuleRef module;
  std::string log;
  ASSERT_EQ(device->module_load(context, std::as_bytes(std::span(text)), &module, &log), CUDA_SUCCESS) << log;
  const auto ask = [&](const std::string& name, uint32_t threads, uint32_t* blocks) {
    Code found;
    FunctionInfo info;
    EXPECT_EQ(device->module_function(module, name, &found.function), CUDA_SUCCESS);
    EXPECT_EQ(device->occupancy(found, threads, 0, blocks), CUDA_SUCCESS);
    EXPECT_EQ(device->function_info(found, &info), CUDA_SUCCESS);
    return info.info.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS];
  };
  uint32_t blocks = 0;
  for (uint32_t threads = 1; threads <= 1024; ++threads) {
    ask("of" + std::to_string(threads), threads, &blocks);
    EXPECT_GE(blocks, 1u) << threads;
  }
  EXPECT_EQ(ask("of384", 384, &blocks), 168);
  EXPECT_EQ(ask("of768", 768, &blocks), 80);
  EXPECT_EQ(ask("of_eight", 256, &blocks), 32);
  EXPECT_EQ(blocks, 8u);
  EXPECT_EQ(ask("of_few", 512, &blocks), 40);
  EXPECT_EQ(blocks, 3u);
}

TEST_F(SoftDeviceTest, BrokenImages) {
  LibraryRef library;
  const auto load_text = [&](const std::string& text) {
    std::string log;
    const CUresult result = device->library_load(std::as_bytes(std::span(text)), &library, &log);
    EXPECT_FALSE(log.empty());
    return result;
  };
  EXPECT_EQ(load_text(".version 9.0\n.target sm_90\n.address_size 64\n// broken\n"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load_text("nonsense"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load_text(""), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(SoftDeviceTest, Information) {
  vgpu_device_info info, again;
  device->info(&info);
  device->info(&again);
  EXPECT_STREQ(info.name, "Bandsaw software device");
  EXPECT_EQ(std::memcmp(info.uuid, again.uuid, 16), 0);
  EXPECT_EQ(info.total_bytes, 1ull << 30);
  EXPECT_EQ(info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR], 9);
  EXPECT_EQ(info.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], 8);
  uint64_t value = 0;
  EXPECT_EQ(device->context_get_limit(context, CU_LIMIT_PRINTF_FIFO_SIZE, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 1u << 20);
  EXPECT_EQ(device->context_get_limit(context, CU_LIMIT_MAX, &value), CUDA_ERROR_UNSUPPORTED_LIMIT);
}

}  // namespace
}  // namespace bandsaw::soft
