// What the test programs share: checks that say what failed, and end the program with status 1.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

// A runtime call that must succeed.
#define CHECK(call)                                                                                 \
  do {                                                                                              \
    const cudaError_t check_error = (call);                                                         \
    if (check_error != cudaSuccess) {                                                               \
      std::printf("%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error), \
                  cudaGetErrorString(check_error));                                                 \
      std::exit(1);                                                                                 \
    }                                                                                               \
  } while (0)

// A call that must answer with this code, of either API.
#define EXPECT_CODE(expected, call)                                                                          \
  do {                                                                                                       \
    const int check_code = static_cast<int>(call), check_wanted = static_cast<int>(expected);                \
    if (check_code != check_wanted) {                                                                        \
      std::printf("%s:%d: %s: code %d, expected %d\n", __FILE__, __LINE__, #call, check_code, check_wanted); \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (0)

// A driver call that must succeed.
#define CHECK_DRIVER(call) EXPECT_CODE(CUDA_SUCCESS, call)

#define EXPECT(condition)                                                   \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

// Two values that must be equal, printed if they are not.
#define EXPECT_EQ(a, b)                                                                                          \
  do {                                                                                                           \
    const auto check_a = (a);                                                                                    \
    const auto check_b = (b);                                                                                    \
    if (!(check_a == check_b)) {                                                                                 \
      std::printf("%s:%d: %s is %.17g, %s is %.17g\n", __FILE__, __LINE__, #a, static_cast<double>(check_a), #b, \
                  static_cast<double>(check_b));                                                                 \
      std::exit(1);                                                                                              \
    }                                                                                                            \
  } while (0)

inline int passed() {
  std::printf("ok\n");
  return 0;
}
