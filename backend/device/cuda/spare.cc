#include "backend/device/cuda/spare.h"

#include <algorithm>
#include <iterator>

#include "backend/device/cuda/heap.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

Result<std::unique_ptr<Spare>> Spare::make(DriverRef driver, CUdevice device, uint64_t granularity, uint64_t begin,
                                           uint64_t bytes) {
  std::unique_ptr<Spare> spare(new Spare(std::move(driver), device, granularity));
  CUresult result = spare->create();
  if (result != CUDA_SUCCESS) {
    return Status::error(ENOMEM, "memory behind unused addresses: {}", spare->driver_->describe(result));
  }
  result = spare->close(begin, bytes);
  if (result == CUDA_SUCCESS) return spare;
  return Status::error(ENOMEM, "mapping memory behind unused addresses: {}", spare->driver_->describe(result));
}

Spare::~Spare() {
  for (const auto& [address, bytes] : pieces_) driver_->cuMemUnmap(address, bytes);
  for (const CUmemGenericAllocationHandle memory : {piece_, granule_}) {
    if (memory != 0) driver_->cuMemRelease(memory);
  }
}

CUresult Spare::create() {
  const CUmemAllocationProp prop = allocation_properties(device_);
  const CUresult result = driver_->cuMemCreate(&piece_, kPieceBytes, &prop, 0);
  return result == CUDA_SUCCESS ? driver_->cuMemCreate(&granule_, granularity_, &prop, 0) : result;
}

// With mutex_ held. Large pieces lie at multiples of their size.
CUresult Spare::fill(uint64_t address, uint64_t bytes) {
  CUresult result = CUDA_SUCCESS;
  uint64_t at = address;
  for (const uint64_t end = address + bytes; at < end && result == CUDA_SUCCESS;) {
    const bool large = at % kPieceBytes == 0 && end - at >= kPieceBytes;
    const uint64_t part = large ? kPieceBytes : granularity_;
    result = driver_->cuMemMap(at, part, 0, large ? piece_ : granule_, 0);
    if (result != CUDA_SUCCESS) break;
    pieces_[at] = part;
    at += part;
  }
  CUmemAccessDesc access{};
  access.location = allocation_properties(device_).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (result == CUDA_SUCCESS && bytes > 0) result = driver_->cuMemSetAccess(address, bytes, &access, 1);
  return result;
}

CUresult Spare::close(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return fill(address, bytes);
}

// Pieces are unmapped as they were mapped; what sticks out of the range is mapped again.
CUresult Spare::open(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto piece = pieces_.upper_bound(address);
  if (piece != pieces_.begin()) --piece;
  while (piece != pieces_.end() && piece->first < address + bytes) {
    const auto [begin, length] = *piece;
    if (begin + length <= address) {
      ++piece;
      continue;
    }
    if (const CUresult result = driver_->cuMemUnmap(begin, length)) return result;
    piece = pieces_.erase(piece);
    CUresult result = begin < address ? fill(begin, address - begin) : CUDA_SUCCESS;
    const uint64_t end = begin + length, wanted = address + bytes;
    if (result == CUDA_SUCCESS && end > wanted) result = fill(wanted, end - wanted);
    if (result != CUDA_SUCCESS) return result;
    piece = pieces_.lower_bound(std::max(begin, address));
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::cuda
