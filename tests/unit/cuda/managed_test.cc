// Managed variables of the cuda device, with a driver of our own that notes what it is given to load.
#include "backend/device/cuda/managed.h"

#include <gtest/gtest.h>

#include <cstring>

namespace bandsaw::cuda {
namespace {

const std::string kHeader = ".version 9.0\n.target sm_90\n.address_size 64\n";

struct FakeDriver {
  std::string loaded;
  CUresult answer = CUDA_SUCCESS;
  uint64_t source = 0x1122334455667788;  // what the driver's own variables hold
  int unloaded = 0;
};
FakeDriver fake;

CUlibrary const kLibrary = reinterpret_cast<CUlibrary>(0x5000);

CUresult load(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
              unsigned) {
  fake.loaded = static_cast<const char*>(code);
  *library = kLibrary;
  return fake.answer;
}

Driver fake_driver() {
  fake = {};
  Driver driver;
  driver.cuLibraryLoadData = load;
  driver.cuLibraryUnload = [](CUlibrary) { return ++fake.unloaded, CUDA_SUCCESS; };
  driver.cuLibraryGetGlobal = [](CUdeviceptr* address, size_t* bytes, CUlibrary, const char* name) {
    *address = reinterpret_cast<CUdeviceptr>(&fake.source);
    *bytes = sizeof fake.source;
    return std::string(name) == "p$initial" ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  };
  driver.cuMemcpyDtoHAsync = [](void* to, CUdeviceptr from, size_t bytes, CUstream) {
    std::memcpy(to, reinterpret_cast<void*>(from), bytes);
    return CUDA_SUCCESS;
  };
  driver.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) { return *stream = nullptr, CUDA_SUCCESS; };
  driver.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
  driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  driver.cuGetErrorName = [](CUresult, const char** name) { return *name = "NAME", CUDA_SUCCESS; };
  driver.cuGetErrorString = [](CUresult, const char** text) { return *text = "text", CUDA_SUCCESS; };
  return driver;
}

std::shared_ptr<ManagedCode> code_of(const std::string& ptx, CUresult expected = CUDA_SUCCESS) {
  std::shared_ptr<ManagedCode> code;
  std::string log;
  EXPECT_EQ(ManagedCode::find(std::as_bytes(std::span(ptx)), 90, &code, &log), expected) << log;
  EXPECT_EQ(log.empty(), expected == CUDA_SUCCESS);
  return code;
}

// The program's pages at their own address.
std::shared_ptr<std::byte> pages_at(uint64_t address) {
  return {std::shared_ptr<void>(), reinterpret_cast<std::byte*>(address)};
}

TEST(CudaManaged, CodeWithoutManagedVariablesIsTheDrivers) {
  EXPECT_FALSE(code_of(kHeader + ".visible .global .u32 a;"));
  EXPECT_FALSE(code_of(kHeader + "// about .managed variables\n.visible .global .u32 a;"));
  EXPECT_FALSE(code_of(".version 9.0\n.target sm_120\n.address_size 64\n.global .attribute(.managed) .u32 a;"));
  EXPECT_FALSE(code_of("no code at all"));
}

TEST(CudaManaged, WhatCannotBeReadIsAnError) {
  EXPECT_FALSE(code_of(kHeader + ".global .attribute(.managed) .u32 a; ?", CUDA_ERROR_INVALID_PTX));
  EXPECT_FALSE(code_of(kHeader + ".extern .global .attribute(.managed) .u32 a;", CUDA_ERROR_NOT_SUPPORTED));
}

TEST(CudaManaged, LoadsWhenTheLastHasItsPlace) {
  const Driver driver = fake_driver();
  const auto code = code_of(kHeader +
                            ".global .u32 d;\n.global .attribute(.managed) .align 8 .u32 a[4] = {1, 2};\n"
                            ".global .attribute(.managed) .align 8 .u64 p = generic(d);\n"
                            ".visible .entry k() { .reg .u32 %r; ld.global.u32 %r, [a]; ret; }");
  ASSERT_TRUE(code);
  const std::vector<ManagedVariable> variables = code->variables();
  ASSERT_EQ(variables.size(), 2u);
  EXPECT_EQ(variables[0].name, "a");
  EXPECT_EQ(variables[0].bytes, 16u);

  alignas(16) uint32_t a[4] = {9, 9, 9, 9};
  uint64_t p = 0;
  std::atomic<CUlibrary> library{nullptr};
  const auto at = [](void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
  EXPECT_EQ(code->bind(driver, "b", at(a), pages_at(at(a)), &library), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(code->bind(driver, "a", at(a) + 4, pages_at(at(a) + 4), &library), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(code->bind(driver, "a", at(a), pages_at(at(a)), &library), CUDA_SUCCESS);
  EXPECT_EQ(library.load(), nullptr);
  ASSERT_EQ(code->bind(driver, "p", at(&p), pages_at(at(&p)), &library), CUDA_SUCCESS);
  EXPECT_EQ(library.load(), kLibrary);
  EXPECT_NE(fake.loaded.find(std::to_string(at(a))), std::string::npos) << fake.loaded;
  EXPECT_EQ(fake.loaded.find(".attribute"), std::string::npos) << fake.loaded;
  EXPECT_EQ(a[0], 1u);
  EXPECT_EQ(a[1], 2u);
  EXPECT_EQ(p, fake.source);
  EXPECT_EQ(code->bind(driver, "a", at(a), pages_at(at(a)), &library), CUDA_ERROR_INVALID_VALUE)
      << "in use at its first address";
}

TEST(CudaManaged, InitialValuesGoToTheProgramsPagesNotToTheAddress) {
  Driver driver = fake_driver();
  const auto code = code_of(kHeader +
                            ".global .attribute(.managed) .u32 a = 5;\n"
                            ".visible .entry k() { .reg .u32 %r; ld.global.u32 %r, [a]; ret; }");
  uint32_t page = 9;
  std::atomic<CUlibrary> library{nullptr};
  const uint64_t elsewhere = 0x7d0000000000;
  ASSERT_EQ(code->bind(driver, "a", elsewhere, pages_at(reinterpret_cast<uint64_t>(&page)), &library), CUDA_SUCCESS);
  EXPECT_EQ(page, 5u);
  EXPECT_NE(fake.loaded.find(std::to_string(elsewhere)), std::string::npos) << fake.loaded;
}

TEST(CudaManaged, TheDriversErrorsAreHandedOn) {
  const std::string ptx = kHeader + ".global .attribute(.managed) .u32 a;";
  alignas(8) uint64_t a = 0;
  std::atomic<CUlibrary> library{nullptr};
  Driver driver = fake_driver();
  fake.answer = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  EXPECT_EQ(code_of(ptx)->bind(driver, "a", reinterpret_cast<uint64_t>(&a), pages_at(reinterpret_cast<uint64_t>(&a)),
                               &library),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(library.load(), nullptr);
  driver = fake_driver();
  const auto pointer = code_of(kHeader + ".global .u32 d;\n.global .attribute(.managed) .u64 q = generic(d);");
  EXPECT_EQ(
      pointer->bind(driver, "q", reinterpret_cast<uint64_t>(&a), pages_at(reinterpret_cast<uint64_t>(&a)), &library),
      CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(library.load(), nullptr);
  EXPECT_EQ(fake.unloaded, 1);
}

}  // namespace
}  // namespace bandsaw::cuda
