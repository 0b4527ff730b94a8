#include "guest-driver/libcuda/core/local_storage.h"

#include <gtest/gtest.h>

namespace bandsaw::libcuda {
namespace {

int destroyed = 0;
void destroy(CUcontext, void*, void* value) { destroyed += *static_cast<int*>(value); }

TEST(LocalStorage, KeepsOneValueAKey) {
  LocalStorage storage;
  int key = 0, other = 0, one = 1, two = 2;
  void* value = nullptr;
  EXPECT_EQ(storage.get(&key, &value), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(storage.put(&key, &one, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(storage.put(&other, &one, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(storage.put(&key, &two, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(storage.get(&key, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, &one);
  EXPECT_EQ(storage.remove(&key), CUDA_SUCCESS);
  EXPECT_EQ(storage.remove(&key), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(storage.get(&key, &value), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(storage.get(&other, &value), CUDA_SUCCESS);
}

TEST(LocalStorage, ClearDestroysEachValueOnce) {
  LocalStorage storage;
  int keys[3], values[3] = {1, 10, 100};
  for (int i = 0; i < 3; i++) EXPECT_EQ(storage.put(&keys[i], &values[i], i == 1 ? nullptr : destroy), CUDA_SUCCESS);
  destroyed = 0;
  storage.clear(nullptr);
  EXPECT_EQ(destroyed, 101);
  storage.clear(nullptr);
  EXPECT_EQ(destroyed, 101);
}

TEST(LocalStorage, SaysWhenItIsFull) {
  LocalStorage storage;
  static char keys[1000];
  CUresult result = CUDA_SUCCESS;
  size_t count = 0;
  while (result == CUDA_SUCCESS && count < 1000) result = storage.put(&keys[count++], nullptr, nullptr);
  EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
}

}  // namespace
}  // namespace bandsaw::libcuda
