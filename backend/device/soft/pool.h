// Memory pools for stream-ordered allocation. A freed block may be used again by later work of the stream that
// freed it at once, and by any stream when the free has run.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <vector>

#include "backend/device/device.h"
#include "backend/device/soft/memory_table.h"
#include "backend/device/soft/op.h"

namespace bandsaw::soft {

class SoftPool : public Pool {
 public:
  SoftPool(std::shared_ptr<Memory> memory, const vgpu_pool_props& props);
  ~SoftPool() override;

  // `stream` is the stream's id.
  CUresult allocate(uint64_t bytes, uint64_t stream, uint64_t* address);
  // The program freed the block in `stream`; `op` is the free in stream order.
  void freed(uint64_t address, uint64_t stream, OpRef op);
  // Unmaps cached blocks whose free has run until at most `keep` bytes are mapped.
  void trim(uint64_t keep);
  void trim_to_threshold();
  bool idle();  // nothing of it is in use, by work on streams either
  CUresult get_attribute(CUmemPool_attribute attribute, uint64_t* value);
  CUresult set_attribute(CUmemPool_attribute attribute, uint64_t value);

 private:
  struct Cached {
    uint64_t address, bytes;
    uint64_t stream;
    OpRef free_op;
  };
  struct Reuse {
    uint64_t follow_event = 1, opportunistic = 1, internal_dependencies = 1;
  };
  const std::shared_ptr<Memory> memory_;
  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::vector<Cached> cached_;
  uint64_t threshold_;
  uint64_t reserved_ = 0, reserved_high_ = 0, used_ = 0, used_high_ = 0;
  Reuse reuse_;
};

}  // namespace bandsaw::soft
