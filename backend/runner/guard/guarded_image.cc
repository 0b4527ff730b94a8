#include "backend/runner/guard/guarded_image.h"

#include <cstring>
#include <utility>
#include <variant>

#include "backend/device/image/image.h"
#include "backend/device/image/units.h"
#include "vgpu-sched/ptx/clear.h"
#include "vgpu-sched/ptx/guard.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::runner {
namespace {

// A tree takes many times the room of its text.
constexpr size_t kTextMost = 32 << 20;

}  // namespace

CUresult guard_image(const ImageGuard& how, std::vector<std::byte>* image, std::string* log) {
  image::PtxChoice choice;
  if (const CUresult result = image::find_ptx(*image, &choice, log, how.gpu)) return result;
  size_t bytes = 0;
  for (const std::string& unit : choice.units) bytes += unit.size();
  if (bytes > kTextMost) {
    *log = "too much PTX to be guarded: " + std::to_string(bytes) + " bytes";
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  ptx::Module module;
  if (const CUresult result = image::read_units(choice.units, &module, log)) return result;
  const auto refused = [log](const ptx::Refusal& refusal) {
    *log = "its code cannot be guarded: it " + refusal.reason;
    return CUDA_ERROR_NOT_SUPPORTED;
  };
  if (how.clear_shared) {
    auto cleared = ptx::clear_shared(std::move(module));
    if (const auto* refusal = std::get_if<ptx::Refusal>(&cleared)) return refused(*refusal);
    module = std::move(std::get<ptx::Module>(cleared));
  }
  std::string text;
  if (how.guard) {
    auto made = ptx::guard(std::move(module), how.area);
    if (const auto* refusal = std::get_if<ptx::Refusal>(&made)) return refused(*refusal);
    text = std::move(std::get<std::string>(made));
  } else {
    text = ptx::print(module);
  }
  image->resize(text.size() + 1);
  std::memcpy(image->data(), text.c_str(), text.size() + 1);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::runner
