// Copies and fills: small ones in place, large ones cut into pieces for the copy threads.
#pragma once

#include <memory>

#include "backend/device/device.h"
#include "backend/device/soft/engine_meter.h"
#include "backend/device/soft/executor.h"
#include "backend/device/soft/op.h"

namespace bandsaw::soft {

// Bytes from an end's first to its last; false on overflow or nonsense (rows that overlap).
bool copy_extent(const Copy& copy, const CopyEnd& end, uint64_t* bytes);
bool fill_extent(const vgpu_fill& fill, uint64_t* bytes);

// Row by row work with one form for copies and fills. Addresses are pointers of this process.
struct Transfer {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;          // null: fill
  uint64_t width = 0, height = 1, depth = 1;  // bytes, rows, planes
  uint64_t destination_pitch = 0, destination_plane = 0, source_pitch = 0, source_plane = 0;
  uint64_t destination_extent = 0, source_extent = 0;
  uint32_t element_bytes = 1, value = 0;
  unsigned engine = kCopyIn;              // who pays
  std::shared_ptr<const void> arrays[2];  // what it copies from and to, if these are arrays

  uint64_t bytes() const { return width * height * depth; }
};

class TransferOp : public StreamOp {
 public:
  // `executor` and `host` outlive the operation's run.
  TransferOp(std::shared_ptr<SoftContext> context, const Transfer& transfer, Executor& executor, DeviceHost* host,
             int priority, EngineWork work);
  bool start(Scheduler& scheduler, CUresult* status) override;
  void cancel(Scheduler& scheduler) override;
  void drop(CUresult) override { work_.release(); }

 private:
  void charge();
  const Transfer transfer_;
  Executor& executor_;
  DeviceHost* const host_;
  const int priority_;
  EngineWork work_;
  std::shared_ptr<Job> job_;
};

}  // namespace bandsaw::soft
