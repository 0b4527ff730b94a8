#include "backend/runner/slicing/kept_ptx.h"

#include "backend/device/image/image.h"
#include "backend/device/image/units.h"

namespace bandsaw::runner {
namespace {

// A tree takes many times the room of its text.
constexpr uint64_t kLargestText = 32 << 20;

}  // namespace

struct KeptPtx::Unit {
  image::ImageEntry entry;  // `payload` views `bytes`
  std::vector<std::byte> bytes;
};

KeptPtx::KeptPtx(PtxBudget* budget) : budget_(budget) {}

KeptPtx::~KeptPtx() { budget_->used -= bytes_; }

std::shared_ptr<const KeptPtx> KeptPtx::keep(std::span<const std::byte> image, uint32_t gpu, PtxBudget* budget) {
  std::shared_ptr<KeptPtx> kept(new KeptPtx(budget));
  std::vector<image::ImageEntry> chosen;
  std::string log;
  if (image::choose_ptx(image, &chosen, &log, gpu) != CUDA_SUCCESS) {
    kept->why_not_ = "its image has no PTX for this GPU";
    return kept;
  }
  uint64_t text = 0;
  for (const image::ImageEntry& entry : chosen) {
    kept->bytes_ += entry.payload.size();
    text += entry.bytes;
  }
  const bool fits = (budget->used += kept->bytes_) <= PtxBudget::kBytes;  // given back by the destructor
  if (text > kLargestText) {
    kept->why_not_ = "its image has too much PTX";
  } else if (!fits) {
    kept->why_not_ = "the process has more PTX than is kept";
  }
  if (!kept->why_not_.empty()) {
    budget->used -= std::exchange(kept->bytes_, 0);
    return kept;
  }
  kept->runs_ = image::runs_its_ptx(image, gpu);
  for (const image::ImageEntry& entry : chosen) {
    Unit unit{entry, {entry.payload.begin(), entry.payload.end()}};
    unit.entry.payload = unit.bytes;
    kept->units_.push_back(std::move(unit));
  }
  return kept;
}

Result<std::shared_ptr<const ptx::Program>> KeptPtx::read() const {
  std::vector<image::ImageEntry> entries;
  for (const Unit& unit : units_) entries.push_back(unit.entry);
  std::vector<std::string> texts;
  std::string log;
  ptx::Module module;
  if (image::unpack_ptx(entries, &texts, &log) != CUDA_SUCCESS ||
      image::read_units(texts, &module, &log) != CUDA_SUCCESS) {
    return Status::error(EINVAL, "its PTX cannot be read: {}", log);
  }
  return std::make_shared<const ptx::Program>(std::move(module));
}

}  // namespace bandsaw::runner
