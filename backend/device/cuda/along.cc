#include "backend/device/cuda/along.h"

#include <sys/mman.h>

#include "backend/device/cuda/away_copy.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

constexpr uint64_t kAlign = 16;

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void Along::add_variable(uint64_t address, uint64_t bytes) {
  variables_.push_back({address, bytes, variable_bytes_});
  variable_bytes_ += round_up(bytes, kAlign);
}

void Along::add_memory(uint64_t key, const CudaMemoryRef& memory) { memory_.push_back({.key = key, .memory = memory}); }

CUresult Along::make_pages() {
  variable_bytes_ = round_up(variable_bytes_, kKeyStep);
  page_bytes_ = variable_bytes_;
  for (Whole& one : memory_) {
    one.offset = page_bytes_;
    page_bytes_ += one.memory->bytes;
  }
  if (page_bytes_ == 0) return CUDA_SUCCESS;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const pages = ::mmap(nullptr, page_bytes_, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (pages == MAP_FAILED) {
    drop();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pages_ = pages;
  return CUDA_SUCCESS;
}

// Beside where the program has it, which may be nowhere, or for reading only.
CUresult Along::map(Whole* one) {
  const auto at = heap_->reserve(one->memory->bytes, 0, &one->reserved);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  one->address = *at;
  CUresult result = driver_->cuMemMap(*at, one->memory->bytes, 0, one->memory->handle, 0);
  if (result != CUDA_SUCCESS) {
    heap_->unreserve(one->address, one->reserved);
    one->address = 0;
    return result;
  }
  CUmemAccessDesc access{};
  access.location = allocation_properties(device_).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = driver_->cuMemSetAccess(*at, one->memory->bytes, &access, 1);
  if (result != CUDA_SUCCESS) unmap(one);
  return result;
}

void Along::unmap(Whole* one) {
  if (one->address == 0) return;
  if (const CUresult result = driver_->cuMemUnmap(one->address, one->memory->bytes)) {
    log::error("memory {} stays mapped at {:#x}: {}", one->key, one->address, driver_->describe(result));
  } else {
    heap_->unreserve(one->address, one->reserved);
  }
  one->address = 0;
}

CUresult Along::copy(CUcontext context, bool to_device) {
  auto* const pages = static_cast<std::byte*>(pages_);
  std::vector<AwayPiece> pieces;
  for (const Place& one : variables_) add_pieces(one.address, pages + one.offset, one.bytes, &pieces);
  CUresult result = CUDA_SUCCESS;
  for (Whole& one : memory_) {
    if (result == CUDA_SUCCESS) result = map(&one);
    if (result == CUDA_SUCCESS) add_pieces(one.address, pages + one.offset, one.memory->bytes, &pieces);
  }
  if (result == CUDA_SUCCESS) result = copy_pieces(*driver_, context, pieces, to_device);
  for (Whole& one : memory_) unmap(&one);
  if (result != CUDA_SUCCESS) {
    log::error("{} variables and {} pieces of created memory are not copied {} the device: {}", variables_.size(),
               memory_.size(), to_device ? "to" : "off", driver_->describe(result));
  }
  return result;
}

void Along::away(std::vector<AwayMemory>* all) const {
  auto* const pages = static_cast<std::byte*>(pages_);
  if (variable_bytes_ != 0) all->push_back({kVariables, {pages, variable_bytes_}});
  for (const Whole& one : memory_) all->push_back({one.key, {pages + one.offset, one.memory->bytes}});
}

void Along::drop() {
  if (pages_) ::munmap(pages_, page_bytes_);
  pages_ = nullptr;
  page_bytes_ = variable_bytes_ = 0;
  variables_.clear();
  memory_.clear();
}

}  // namespace bandsaw::cuda
