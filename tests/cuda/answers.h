// A call, its code and what it gave, as one line of text: two libraries that answer alike print the same.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace answers {

// What the next lines are about, e.g. the kind of memory or the value of an argument.
inline char about[200] = "";
inline void note(const char* format, ...) {
  va_list list;
  va_start(list, format);
  std::vsnprintf(about, sizeof about, format, list);
  va_end(list);
}

template <class... T>
void give(T... outputs) {
  ((std::printf(" %lld", (long long)(outputs))), ...);
}

// The primary context of device 0, current.
inline CUdevice device;
inline CUcontext context;

inline int passed() {
  std::printf("ok\n");
  return 0;
}

}  // namespace answers

// ASK(call, outputs...): makes the call, prints it with its code, and the outputs where the code is 0. The value is the
// code. Outputs are integers, or pointers as differences to something that both libraries have.
#define ASK(call, ...)                                                                      \
  ([&]() -> int {                                                                           \
    const int code_ = static_cast<int>(call);                                               \
    std::printf("%s%s%s -> %d", answers::about, *answers::about ? ": " : "", #call, code_); \
    if (code_ == 0) answers::give(__VA_ARGS__);                                             \
    std::printf("\n");                                                                      \
    std::fflush(stdout);                                                                    \
    return code_;                                                                           \
  }())
// Without printing; what follows needs it.
#define NEED(call)                                                          \
  do {                                                                      \
    const int code_ = static_cast<int>(call);                               \
    if (code_ != 0) {                                                       \
      std::printf("%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, code_); \
      std::exit(2);                                                         \
    }                                                                       \
  } while (0)

namespace answers {

inline void begin() {
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
}

// A part is over: nothing of it has gone wrong on the device.
inline void done(const char* what) {
  note("%s", what);
  ASK(cuCtxSynchronize());
  note("");
}

}  // namespace answers
