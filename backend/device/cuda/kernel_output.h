// What kernels print. The driver writes printf text to the process's standard output and failed assertions to its
// standard error when somebody synchronises; both become a file in memory here, which is read after each wait.
#pragma once

#include <mutex>
#include <string>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::cuda {

// Thread-safe. Takes the process's descriptors 1 and 2; the program's own log must have another one by then.
class KernelOutput {
 public:
  Status capture();
  // What was written since the last call.
  std::string take();

 private:
  std::mutex mutex_;
  UniqueFd file_;
  uint64_t read_ = 0;  // guarded by mutex_: bytes taken so far
};

}  // namespace bandsaw::cuda
