// For builds without the libraries that unpack images: nothing is ever rewritten.
#include "backend/runner/slicing/kept_ptx.h"

namespace bandsaw::runner {

struct KeptPtx::Unit {};

KeptPtx::KeptPtx(PtxBudget* budget) : budget_(budget) {}
KeptPtx::~KeptPtx() = default;

std::shared_ptr<const KeptPtx> KeptPtx::keep(std::span<const std::byte>, uint32_t, PtxBudget* budget) {
  std::shared_ptr<KeptPtx> kept(new KeptPtx(budget));
  kept->why_not_ = "this build does not read images (it lacked lz4 or zstd)";
  return kept;
}

Result<std::shared_ptr<const ptx::Program>> KeptPtx::read() const { return Status::error(ENOSYS, "{}", why_not_); }

}  // namespace bandsaw::runner
