#include "guest-driver/libcuda/core/context.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "guest-driver/libcuda/core/local_storage.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/thread.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {
namespace {

struct Registry {
  std::mutex mutex;  // of `all`
  std::vector<Context*> all;
  std::mutex changes;  // context_mutex()
  std::atomic<uint64_t> next_id{1};
  std::array<std::atomic<ContextEnded>, 32> ended{};
  std::atomic<void (*)()> synchronising{nullptr}, synchronised{nullptr};
};

// Leaked: used after static destructors.
Registry& registry() {
  static auto* const created = new Registry;
  return *created;
}

}  // namespace

bool are_flags(unsigned flags) {
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  return !(flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) && (scheduling & (scheduling - 1)) == 0;
}

Context* new_context(VirtualGpu* gpu, bool primary) {
  auto* context = new Context;
  context->primary = primary;
  context->gpu = gpu;
  context->device = gpu->ordinal;
  context->id = registry().next_id.fetch_add(1);
  context->storage = new LocalStorage;
  std::lock_guard lock(registry().mutex);
  registry().all.push_back(context);
  return context;
}

Context* any_context(const VirtualGpu& gpu) {
  if (gpu.primary->alive()) return gpu.primary;
  std::lock_guard lock(registry().mutex);
  for (Context* const context : registry().all) {
    if (context->gpu == &gpu && context->alive()) return context;
  }
  return nullptr;
}

Context* context_of_handle(uint64_t handle) {
  if (handle == 0) return nullptr;
  std::lock_guard lock(registry().mutex);
  for (Context* const context : registry().all) {
    if (context->handle == handle && !context->sms.count) return context;
  }
  return nullptr;
}

Context* current_context() { return this_thread().current(); }

Context* from_program(CUcontext context) {
  Context* const current = current_context();
  if (!context) return current;
  auto* const meant = reinterpret_cast<Context*>(context);
  if (meant == current) return meant;
  for (int i = 0; state() == State::kReady && i < gpu_count(); ++i) {
    if (gpu_at(i).primary == meant) return meant;
  }
  std::lock_guard lock(registry().mutex);
  const auto& all = registry().all;
  return std::find(all.begin(), all.end(), meant) == all.end() ? nullptr : meant;
}

std::mutex& context_mutex() { return registry().changes; }

void on_context_ended(ContextEnded function) {
  for (auto& entry : registry().ended) {
    ContextEnded there = nullptr;
    if (entry.compare_exchange_strong(there, function) || there == function) return;
  }
}

void on_synchronising(void (*function)()) { registry().synchronising.store(function); }

void tell_synchronising() {
  if (const auto function = registry().synchronising.load(std::memory_order_relaxed)) function();
}

void on_synchronised(void (*function)()) { registry().synchronised.store(function); }

void tell_synchronised() {
  if (const auto function = registry().synchronised.load(std::memory_order_relaxed)) function();
}

void end_context(Context* context) {
  context->storage->clear(to_program(context));
  for (auto& entry : registry().ended) {
    if (const ContextEnded function = entry.load()) function(context);
  }
  context->id = registry().next_id.fetch_add(1);
}

}  // namespace bandsaw::libcuda
