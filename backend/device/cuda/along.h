// Memory that a process has beside its heap, on its way to another process: variables of its code, which lie where the
// driver has put them, and what it has created (cuMemCreate), wherever that is mapped.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/device/away_memory.h"
#include "backend/device/cuda/reservations.h"

namespace bandsaw::cuda {

// For one thread at a time. The device's context is current.
class Along {
 public:
  // What its bytes are known by (AwayMemory): all variables by the first key, memory by those that follow.
  static constexpr uint64_t kKeyStep = 4096, kVariables = kKeyStep;

  Along(DriverRef driver, Heap* heap, CUdevice device) : driver_(std::move(driver)), heap_(heap), device_(device) {}
  ~Along() { drop(); }
  Along(const Along&) = delete;

  bool empty() const { return variables_.empty() && memory_.empty(); }
  void add_variable(uint64_t address, uint64_t bytes);
  void add_memory(uint64_t key, const CudaMemoryRef& memory);
  // Once all are added: pages for them. OUT_OF_MEMORY.
  CUresult make_pages();
  CUresult copy(CUcontext context, bool to_device);
  void away(std::vector<AwayMemory>* all) const;
  void drop();

 private:
  struct Place {
    uint64_t address = 0, bytes = 0, offset = 0;  // of a variable; offset: in the pages
  };
  struct Whole {
    uint64_t key = 0, offset = 0;
    CudaMemoryRef memory;
    uint64_t address = 0, reserved = 0;  // where it is mapped for the copy
  };
  CUresult map(Whole* one);
  void unmap(Whole* one);

  const DriverRef driver_;
  Heap* const heap_;
  const CUdevice device_;
  std::vector<Place> variables_;
  std::vector<Whole> memory_;
  uint64_t variable_bytes_ = 0;
  void* pages_ = nullptr;
  uint64_t page_bytes_ = 0;
};

}  // namespace bandsaw::cuda
