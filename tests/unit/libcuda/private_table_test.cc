// The tables behind cuGetExportTable: which are there, and what is said of a slot that has no function.
#include "guest-driver/libcuda/core/private_table.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace bandsaw::libcuda {
namespace {

constexpr unsigned char kCudart[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                     0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
constexpr unsigned char kIntegrity[] = {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b,
                                        0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};

const void* const* table(const unsigned char* uuid) {
  CUuuid id;
  std::memcpy(id.bytes, uuid, sizeof(id.bytes));
  const void* found = nullptr;
  EXPECT_EQ(cuGetExportTable(&found, &id), CUDA_SUCCESS);
  return static_cast<const void* const*>(found);
}

template <typename Function>
Function* slot(const unsigned char* uuid, size_t number) {
  return reinterpret_cast<Function*>(const_cast<void*>(table(uuid)[number]));
}

std::string said_by(CUresult (*unknown)()) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(unknown(), CUDA_ERROR_NOT_SUPPORTED);
  return testing::internal::GetCapturedStderr();
}

TEST(PrivateTable, SaysItsSize) { EXPECT_EQ(reinterpret_cast<uintptr_t>(table(kCudart)[0]), 13 * 8u); }

TEST(PrivateTable, AnUnknownSlotSaysItsNumberItsTableAndTheRuntimeOnce) {
  const std::string first = said_by(slot<CUresult()>(kCudart, 9));
  EXPECT_NE(first.find("slot 9 of"), std::string::npos) << first;
  EXPECT_NE(first.find("6bd5fb6c-5bf4-e74a-8987-d93912fd9df9 (CUDART_INTERFACE)"), std::string::npos) << first;
  EXPECT_NE(first.find("version is not known"), std::string::npos) << first;
  EXPECT_EQ(said_by(slot<CUresult()>(kCudart, 9)), "");

  uint64_t answer[2];
  EXPECT_EQ((slot<CUresult(uint32_t, uint64_t, uint64_t*)>(kIntegrity, 1)(13050, 1, answer)), CUDA_SUCCESS);
  const std::string second = said_by(slot<CUresult()>(kCudart, 11));
  EXPECT_NE(second.find("slot 11 of"), std::string::npos) << second;
  EXPECT_NE(second.find("CUDA runtime 13.5"), std::string::npos) << second;
}

TEST(PrivateTable, CompilersAreThereOnlyWithAHost) {
  EXPECT_EQ(slot<CUresult()>(kCudart, 12)(), CUDA_ERROR_NOT_INITIALIZED);
}

TEST(PrivateTable, AnUnknownTableIsNotFound) {
  CUuuid id{};
  const void* found = &id;
  EXPECT_EQ(cuGetExportTable(&found, &id), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(cuGetExportTable(nullptr, &id), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace bandsaw::libcuda
