// Device memory, pools, copies and fills.
#include <algorithm>

#include "backend/device/soft/soft_device.h"
#include "backend/device/soft/transfer.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {

CUresult SoftDevice::memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) {
  if (const CUresult error = scheduler_.error()) return error;
  if (as(context)->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return with_room([&] { return memory_->allocate(bytes, Use::kPlain, context.get(), address); });
}

// Everything queued in these contexts, and one of them to count the waiting operation in.
std::pair<SoftContextRef, SoftDevice::Ops> SoftDevice::everything(const std::vector<SoftContextRef>& contexts) {
  std::pair<SoftContextRef, Ops> all;
  std::lock_guard lock(scheduler_.mutex());
  for (const SoftContextRef& context : contexts) {
    follow_context(*context, &all.second);
    all.first = context;
  }
  return all;
}

// Runs `body` when all work of the contexts has ended, whatever came of it, then calls `done`.
void SoftDevice::free_when_idle(const std::vector<SoftContextRef>& contexts, std::function<CUresult()> body,
                                Done done) {
  const auto [context, after] = everything(contexts);
  auto result = [body = std::move(body), done = std::move(done)](CUresult status) {
    const CUresult freed = body();
    done(status ? status : freed);
  };
  when_done(context, after, std::move(result));
}

void SoftDevice::memory_free(uint64_t address, Done done) {
  if (const CUresult error = scheduler_.error()) return done(error);
  if (address == 0) return done(CUDA_SUCCESS);
  const auto allocation = memory_->find(address);
  const bool own = !allocation || allocation->use == Use::kPrivate || allocation->use == Use::kHeap;
  if (own || memory_->set_live(address, false)) {
    return done(CUDA_ERROR_INVALID_VALUE);
  }
  std::vector<SoftContextRef> waiting = contexts();
  if (allocation->use == Use::kPlain) {
    std::erase_if(waiting, [&](const auto& context) { return context.get() != allocation->owner; });
  }
  if (allocation->use == Use::kPool) {
    const auto pool = pool_of(*allocation);
    return free_when_idle(
        waiting,
        [this, pool, address] {
          auto ended = std::make_shared<CallOp>(nullptr, nullptr);
          scheduler_.start(ended);  // its free has run
          if (pool) pool->freed(address, 0, ended);
          return CUDA_SUCCESS;
        },
        std::move(done));
  }
  const bool graph = allocation->use == Use::kGraph;  // its node keeps the address
  free_when_idle(
      waiting,
      [memory = memory_, address, graph] {
        if (!graph) return memory->release(address);
        memory->drop_claim(address);
        return CUDA_SUCCESS;
      },
      std::move(done));
}

CUresult SoftDevice::managed_add(const ContextRef& context, uint64_t address, uint64_t bytes) {
  if (const CUresult error = scheduler_.error()) return error;
  return with_room([&] { return memory_->managed_add(address, bytes); });
}

void SoftDevice::managed_remove(uint64_t address, Done done) {
  // Also on a failed device: the pages are about to go, so nothing may use them any more.
  free_when_idle(contexts(), [memory = memory_, address] { return memory->managed_remove(address); }, std::move(done));
}

void SoftDevice::settle(Done done) {
  if (const CUresult error = scheduler_.error()) return done(error);
  free_when_idle(contexts(), [] { return CUDA_SUCCESS; }, std::move(done));
}

}  // namespace bandsaw::soft
