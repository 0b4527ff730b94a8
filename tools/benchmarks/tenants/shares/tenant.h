// What tenant programs share: errors that end them, the clock of their logs, name=value words of the command line.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#define CHECK(call)                                                           \
  do {                                                                        \
    const cudaError_t check_error = (call);                                   \
    if (check_error != cudaSuccess) {                                         \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(check_error)); \
      std::exit(3);                                                           \
    }                                                                         \
  } while (0)

// Nanoseconds of CLOCK_MONOTONIC.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// From the third word on.
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 3; i < argc; ++i) {
      const char* equal = std::strchr(argv[i], '=');
      if (!equal) std::fprintf(stderr, "ignored: %s\n", argv[i]);
      if (equal) values_[std::string(argv[i], equal - argv[i])] = equal + 1;
    }
  }
  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }
  double number(const std::string& name, double otherwise) const {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::atof(value.c_str());
  }

 private:
  std::map<std::string, std::string> values_;
};
