#include "backend/runner/slicing/launch_pointers.h"

#include "memory/base/log.h"

namespace bandsaw::runner {

const ptx::PointerParameters* LaunchPointers::find(const Code& code) {
  if (!code.kernel && !code.function) return nullptr;
  const KnownKernelRef kernel = kernels_.find(code);
  if (!kernel) return nullptr;
  if (kernel->pointers) {
    last_ = kernel->pointers;
    return last_->known.load(std::memory_order_acquire) ? &last_->found : nullptr;
  }
  kernel->pointers = std::make_shared<KnownKernel::Pointers>();
  post_([cloner = &cloner_, into = kernel->pointers, image = kernel->image, name = kernel->name] {
    into->found = cloner->pointers(*image, name);
    if (!into->found.why_not.empty()) log::debug("{} may reach any memory: {}", name, into->found.why_not);
    into->known.store(true, std::memory_order_release);
  });
  return nullptr;
}

}  // namespace bandsaw::runner
