#include <gtest/gtest.h>

#include <cstring>

#include "guest-driver/libcuda/api/launch.h"

namespace bandsaw::libcuda {
namespace {

// int at 0, double at 8, three bytes at 16; 20 bytes in all.
void make(FunctionRecord* function) {
  function->parameters = {{0, 4}, {8, 8}, {16, 3}};
  function->parameter_bytes = 20;
}

struct Values {
  int number = 0x01020304;
  double real = 2.5;
  char text[3] = {'a', 'b', 'c'};
  void* pointers[3] = {&number, &real, text};
};

TEST(Parameters, PointersArePackedIntoTheLayout) {
  FunctionRecord function;
  make(&function);
  Values values;
  ParameterBuffer buffer;
  std::memset(buffer.bytes, 0xff, sizeof(buffer.bytes));
  ASSERT_EQ(pack_parameters(function, values.pointers, nullptr, &buffer), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(buffer.bytes, &values.number, 4), 0);
  EXPECT_EQ(std::memcmp(buffer.bytes + 4, "\0\0\0\0", 4), 0);  // no stale bytes travel
  EXPECT_EQ(std::memcmp(buffer.bytes + 8, &values.real, 8), 0);
  EXPECT_EQ(std::memcmp(buffer.bytes + 16, "abc\0", 4), 0);
}

// Lengths as a real driver (580.159) judges them: shorter is taken, longer is not.
TEST(Parameters, TheExtraFormIsTakenAsItIs) {
  FunctionRecord function;
  make(&function);
  char packed[24] = "0123456789012345678901";
  size_t bytes = 20;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  ParameterBuffer buffer;
  ASSERT_EQ(pack_parameters(function, nullptr, extra, &buffer), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(buffer.bytes, packed, 20), 0);
  bytes = 18;
  ASSERT_EQ(pack_parameters(function, nullptr, extra, &buffer), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(buffer.bytes, "012345678901234567\0\0", 20), 0);
  bytes = 21;
  EXPECT_EQ(pack_parameters(function, nullptr, extra, &buffer), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST(Parameters, RefusesWhatDoesNotFit) {
  FunctionRecord function;
  make(&function);
  Values values;
  ParameterBuffer buffer;
  void* extra[] = {CU_LAUNCH_PARAM_END};
  EXPECT_EQ(pack_parameters(function, nullptr, nullptr, &buffer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pack_parameters(function, values.pointers, extra, &buffer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pack_parameters(function, nullptr, extra, &buffer), CUDA_ERROR_INVALID_VALUE);
  values.pointers[1] = nullptr;
  EXPECT_EQ(pack_parameters(function, values.pointers, nullptr, &buffer), CUDA_ERROR_INVALID_VALUE);
  FunctionRecord empty;
  EXPECT_EQ(pack_parameters(empty, nullptr, nullptr, &buffer), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::libcuda
