#include "backend/runner/slicing/control_block.h"

#include <sys/mman.h>

namespace bandsaw::runner {

// Registered with the device, so that a copy to it keeps nobody waiting. It stays so while the device lives.
ControlBlock::Words* ControlBlockPool::next_words() {
  if (!page_ || used_ == kPageBytes / sizeof(ControlBlock::Words)) {
    void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    page_ = std::shared_ptr<void>(page, [](void* mapped) { munmap(mapped, kPageBytes); });
    used_ = 0;
    if (device_->host_pin(page, kPageBytes, false) != CUDA_SUCCESS) return nullptr;
  }
  return static_cast<ControlBlock::Words*>(page_.get()) + used_++;
}

vgpu_fill ControlBlock::zeros(uint64_t at, uint64_t bytes) const {
  return {address + at, 0, bytes / sizeof(uint32_t), 1, sizeof(uint32_t), 0};
}

Copy ControlBlock::counter_to(uint32_t* word) const {
  Copy copy;
  copy.source.address = address;
  copy.destination = {.address = reinterpret_cast<uint64_t>(word), .host = true};
  copy.width_bytes = sizeof *word;
  return copy;
}

Copy ControlBlock::counts_to_host() const {
  Copy copy;
  copy.source.address = address + kCountsAt;
  copy.destination = {.address = reinterpret_cast<uint64_t>(counts), .host = true};
  copy.width_bytes = sizeof *counts;
  return copy;
}

Copy ControlBlock::redo_to_host() const {
  Copy copy;
  copy.source.address = redo_address;
  copy.destination = {.address = reinterpret_cast<uint64_t>(redo), .host = true};
  copy.width_bytes = sizeof *redo;
  return copy;
}

bool ControlBlockPool::add_redo_list(const ContextRef& context, ControlBlock* block) {
  constexpr uint64_t kBytes = sizeof(ptx::RedoList) + ControlBlock::kRedoPlaces * sizeof(uint32_t);
  return block->redo_address != 0 || device_->memory_alloc(context, kBytes, &block->redo_address) == CUDA_SUCCESS;
}

bool ControlBlockPool::add_sm_counters(const ContextRef& context, ControlBlock* block) {
  constexpr uint64_t kBytes = ptx::kSmCounters * sizeof(uint32_t);
  return block->sm_counters_address != 0 ||
         device_->memory_alloc(context, kBytes, &block->sm_counters_address) == CUDA_SUCCESS;
}

std::shared_ptr<ControlBlock> ControlBlockPool::take(const ContextRef& context) {
  free_.remove_if([](const std::shared_ptr<ControlBlock>& block) { return block->context.expired(); });
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if ((*it)->context.lock() != context) continue;
    std::shared_ptr<ControlBlock> block = std::move(*it);
    free_.erase(it);
    return block;
  }
  auto block = std::make_shared<ControlBlock>();
  block->context = context;
  ControlBlock::Words* const words = next_words();
  if (!words) return nullptr;
  block->claimed = &words->claimed;
  block->peeked = &words->peeked;
  block->claimed_beside = &words->claimed_beside;
  block->counts = &words->counts;
  block->redo = &words->redo;
  block->page = page_;
  if (device_->memory_alloc(context, ControlBlock::kBytes, &block->address) != CUDA_SUCCESS) return nullptr;
  if (device_->stream_create(context, CU_STREAM_NON_BLOCKING, 0, &block->side_stream) != CUDA_SUCCESS) return nullptr;
  return block;
}

}  // namespace bandsaw::runner
