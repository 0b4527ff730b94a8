// Through which of its parameters a launch reaches memory. Found out once for each kernel, beside the record loop,
// which waits a little for it at the kernel's first launch.
#pragma once

#include <functional>
#include <future>
#include <utility>

#include "backend/runner/slicing/kernel_catalogue.h"

namespace bandsaw::runner {

// For the record loop.
class LaunchPointers {
 public:
  using Post = std::function<void(std::function<void()> job)>;

  // Both outlive the jobs that are posted.
  LaunchPointers(KernelCatalogue* kernels, KernelCloner* cloner, Post post)
      : kernels_(*kernels), cloner_(*cloner), post_(std::move(post)) {}

  // Null: it is not known, or not yet. Valid until the next call.
  const ptx::PointerParameters* find(const Code& code);

 private:
  KernelCatalogue& kernels_;
  KernelCloner& cloner_;
  const Post post_;
  std::shared_future<ptx::PointerParameters> last_;  // keeps what find() returned
};

}  // namespace bandsaw::runner
