#include "backend/runner/slicing/control_block.h"

#include <sys/mman.h>

namespace bandsaw::runner {

namespace {

// Registered with the device, so that a copy to it keeps nobody waiting. It stays so while the device lives.
std::shared_ptr<void> pinned(Device* device, size_t bytes) {
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  std::shared_ptr<void> held(page, [bytes](void* mapped) { munmap(mapped, bytes); });
  return device->host_pin(page, bytes, false) == CUDA_SUCCESS ? held : nullptr;
}

template <typename Words>
Copy to_host(uint64_t from, Words* words) {
  Copy copy;
  copy.source.address = from;
  copy.destination = {.address = reinterpret_cast<uint64_t>(words), .host = true};
  copy.width_bytes = sizeof *words;
  return copy;
}

}  // namespace

ControlBlock::Words* ControlBlockPool::next_words() {
  if (!page_ || used_ == kPageBytes / sizeof(ControlBlock::Words)) {
    page_ = pinned(device_, kPageBytes);
    used_ = 0;
    if (!page_) return nullptr;
  }
  return static_cast<ControlBlock::Words*>(page_.get()) + used_++;
}

vgpu_fill ControlBlock::zeros(uint64_t at, uint64_t bytes) const {
  return {address + at, 0, bytes / sizeof(uint32_t), 1, sizeof(uint32_t), 0};
}

Copy ControlBlock::counter_to(uint32_t* word) const { return to_host(address, word); }

Copy ControlBlock::counts_to_host() const { return to_host(address + kCountsAt, counts); }

Copy ControlBlock::redo_to_host() const { return to_host(redo_address, redo); }

Copy ControlBlock::stamps_to_host(size_t count) const {
  Copy copy = to_host(places_address, &places->stamps);
  copy.width_bytes = count * sizeof places->stamps[0];
  return copy;
}

Copy ControlBlock::stops_to_device(size_t count) const {
  Copy copy;
  copy.source = {.address = reinterpret_cast<uint64_t>(&places->stops), .host = true};
  copy.destination.address = places_address + ptx::kBlockStopsAt;
  copy.width_bytes = count * sizeof places->stops[0];
  return copy;
}

bool ControlBlockPool::add_places(const ContextRef& context, ControlBlock* block) {
  if (block->places_address != 0) return true;
  if (!block->places) {
    auto memory = pinned(device_, sizeof(ControlBlock::Places));
    if (!memory) return false;
    block->places = std::static_pointer_cast<ControlBlock::Places>(memory);
  }
  return device_->memory_alloc(context, sizeof(ControlBlock::Places), &block->places_address) == CUDA_SUCCESS;
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
  block->stamps_read = &words->stamps_read;
  block->counts = &words->counts;
  block->redo = &words->redo;
  block->page = page_;
  if (device_->memory_alloc(context, ControlBlock::kBytes, &block->address) != CUDA_SUCCESS) return nullptr;
  if (device_->stream_create(context, CU_STREAM_NON_BLOCKING, 0, &block->side_stream) != CUDA_SUCCESS) return nullptr;
  return block;
}

}  // namespace bandsaw::runner
