// The PTX of an image, kept as it came in case that a kernel of it is to be rewritten.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/base/status.h"
#include "vgpu-sched/ptx/program.h"

namespace bandsaw::runner {

// Bytes of PTX that one process keeps. Outlives what is kept.
struct PtxBudget {
  static constexpr uint64_t kBytes = 64 << 20;
  std::atomic<uint64_t> used{0};
};

// Immutable: any thread.
class KeptPtx {
 public:
  // Only what is needed of an image for this GPU (as KernelCloner) is copied. Never null: an image without PTX, or
  // beyond the budget, says why it cannot be rewritten.
  static std::shared_ptr<const KeptPtx> keep(std::span<const std::byte> image, uint32_t gpu, PtxBudget* budget);
  ~KeptPtx();
  KeptPtx(const KeptPtx&) = delete;

  // Empty: read() may succeed.
  const std::string& why_not() const { return why_not_; }
  // The GPU runs this PTX, or machine code of it (image::runs_its_ptx).
  bool runs() const { return runs_; }
  // Unpacks, parses and links it: takes long.
  Result<std::shared_ptr<const ptx::Program>> read() const;

 private:
  struct Unit;
  explicit KeptPtx(PtxBudget* budget);

  PtxBudget* const budget_;
  uint64_t bytes_ = 0;
  std::string why_not_;
  bool runs_ = false;
  std::vector<Unit> units_;
};

}  // namespace bandsaw::runner
