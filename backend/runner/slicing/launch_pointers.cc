#include "backend/runner/slicing/launch_pointers.h"

#include <chrono>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// Most texts are read by then. A launch whose reach is not known costs more: all that has left the device is mapped.
constexpr std::chrono::milliseconds kReadMost{20};

}  // namespace

const ptx::PointerParameters* LaunchPointers::find(const Code& code) {
  using namespace std::chrono_literals;
  if (!code.kernel && !code.function) return nullptr;
  const KnownKernelRef kernel = kernels_.find(code);
  if (!kernel) return nullptr;
  auto most = 0ms;
  if (!kernel->pointers.valid()) {
    auto found = std::make_shared<std::promise<ptx::PointerParameters>>();
    kernel->pointers = found->get_future();
    most = kReadMost;
    post_([cloner = &cloner_, found, image = kernel->image, name = kernel->name] {
      ptx::PointerParameters pointers = cloner->pointers(*image, name);
      if (!pointers.why_not.empty()) log::debug("{} may reach any memory: {}", name, pointers.why_not);
      found->set_value(std::move(pointers));
    });
  }
  last_ = kernel->pointers;
  return last_.wait_for(most) == std::future_status::ready ? &last_.get() : nullptr;
}

}  // namespace bandsaw::runner
