#include "backend/device/image/linker.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "backend/device/image/image.h"
#include "vgpu-sched/ptx/link.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/rename.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::image {
namespace {

constexpr uint32_t kFatbinBegins = 0xBA55ED50;
constexpr size_t kLogMost = 12 * 1024;

// What the device's runtime brings where kernels launch kernels: whoever loads the code judges these.
bool is_runtime_function(std::string_view name) { return name.starts_with("cuda") || name.starts_with("__cudaCDP2"); }

void use(const ptx::Operand& operand, std::set<std::string>* used) {
  ptx::walk_operand(operand, [&](const ptx::Operand& one) {
    if (const auto* symbol = one.as<ptx::Symbol>()) used->insert(symbol->name);
    if (const auto* address = one.as<ptx::Address>()) {
      if (const auto* base = std::get_if<ptx::Symbol>(&address->base)) used->insert(base->name);
    }
  });
}

std::set<std::string> names_used(const ptx::Module& module) {
  std::set<std::string> used;
  for (const ptx::Item& item : module.items) {
    if (const auto* variable = std::get_if<ptx::Variable>(&item); variable && variable->initial) {
      for (std::string& name : ptx::addresses_in(*variable->initial)) used.insert(std::move(name));
    }
    const auto* function = std::get_if<ptx::Function>(&item);
    if (!function || !function->body) continue;
    ptx::walk(*function->body, [&](const ptx::Statement& statement) {
      const auto* instruction = statement.as<ptx::Instruction>();
      if (!instruction) return;
      for (const ptx::Operand& operand : instruction->operands) use(operand, &used);
    });
  }
  return used;
}

std::set<std::string> names_defined(const ptx::Module& module) {
  std::set<std::string> defined;
  for (const ptx::Item& item : module.items) {
    if (const auto* alias = std::get_if<ptx::Alias>(&item)) defined.insert(alias->name);
    if (const auto* function = std::get_if<ptx::Function>(&item); function && function->body) {
      defined.insert(function->name);
    }
    const auto* variable = std::get_if<ptx::Variable>(&item);
    if (variable && (variable->sized_by_launch() || variable->linkage != ptx::Linkage::kExtern))
      defined.insert(variable->name);
  }
  return defined;
}

std::string_view name_of(const ptx::Item& item) {
  if (const auto* variable = std::get_if<ptx::Variable>(&item)) return variable->name;
  if (const auto* function = std::get_if<ptx::Function>(&item)) return function->name;
  return {};
}

}  // namespace

std::vector<std::string> undefined_names(const ptx::Module& module) {
  const std::set<std::string> used = names_used(module), defined = names_defined(module);
  std::set<std::string> missing;
  for (const ptx::Item& item : module.items) {
    const std::string name(name_of(item));
    if (name.empty() || !used.contains(name) || defined.contains(name)) continue;
    if (!ptx::is_driver_function(name) && !is_runtime_function(name)) missing.insert(name);
  }
  return {missing.begin(), missing.end()};
}

CUresult PtxLinker::fail(CUresult error, const std::string& why) {
  if (log_.size() < kLogMost) log_ += "error   : " + why.substr(0, kLogMost - log_.size()) + "\n";
  return error;
}

CUresult PtxLinker::add(CUjitInputType type, std::span<const std::byte> data, const std::string& name) {
  switch (type) {
    case CU_JIT_INPUT_PTX: {
      const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
      return add_ptx(std::string(text.substr(0, text.find('\0'))), name);
    }
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_FATBINARY:
      return add_image(data, name);
    case CU_JIT_INPUT_OBJECT:
      return add_embedded(data, name, false);
    case CU_JIT_INPUT_LIBRARY:
      return add_embedded(data, name, true);
    case CU_JIT_INPUT_NVVM:
      return fail(CUDA_ERROR_NOT_SUPPORTED, "'" + name + "' is LTO-IR, which needs NVIDIA's compiler: add PTX instead");
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult PtxLinker::add_ptx(const std::string& text, const std::string& name) {
  try {
    units_.push_back(ptx::parse(text));
    return CUDA_SUCCESS;
  } catch (const ptx::ParseError& error) {
    return fail(CUDA_ERROR_INVALID_PTX, "PTX input '" + name + "', " + error.what());
  }
}

CUresult PtxLinker::add_image(std::span<const std::byte> image, const std::string& name) {
  PtxChoice choice;
  std::string why;
  if (const CUresult result = find_ptx(image, &choice, &why)) return fail(result, "'" + name + "': " + why);
  for (const std::string& unit : choice.units) {
    if (const CUresult result = add_ptx(unit, name)) return result;
  }
  return CUDA_SUCCESS;
}

// Members of archives begin at even offsets, fatbins in object files at multiples of 8.
CUresult PtxLinker::add_embedded(std::span<const std::byte> file, const std::string& name, bool archive) {
  size_t found = 0;
  for (size_t at = 0; at + sizeof kFatbinBegins <= file.size(); at += 2) {
    if (std::memcmp(file.data() + at, &kFatbinBegins, sizeof kFatbinBegins) != 0) continue;
    PtxChoice choice;
    std::string why;
    if (find_ptx(file.subspan(at), &choice, &why) != CUDA_SUCCESS) continue;
    for (const std::string& unit : choice.units) {
      if (const CUresult result = add_ptx(unit, name)) return result;
      ++found;
    }
    // find_ptx has read all fatbins in a row.
    while (at + sizeof kFatbinBegins <= file.size()) {
      uint64_t payload = 0;
      uint16_t header = 0;
      if (std::memcmp(file.data() + at, &kFatbinBegins, sizeof kFatbinBegins) != 0 || file.size() - at < 16) break;
      std::memcpy(&header, file.data() + at + 6, sizeof header);
      std::memcpy(&payload, file.data() + at + 8, sizeof payload);
      at = std::min<size_t>((at + header + payload + 7) / 8 * 8, file.size());
    }
    at -= std::min<size_t>(at, 2);
  }
  if (found || archive) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "'" + name + "' holds no PTX (nvcc -gencode ...,code=compute_90 keeps it)");
}

CUresult PtxLinker::complete(std::vector<std::byte>* ptx) {
  if (units_.empty()) return fail(CUDA_ERROR_INVALID_IMAGE, "there is nothing to link");
  try {
    const ptx::Module linked = ptx::link(units_);
    const std::vector<std::string> missing = undefined_names(linked);
    for (const std::string& name : missing) fail(CUDA_ERROR_INVALID_IMAGE, "Undefined reference to '" + name + "'");
    if (!missing.empty()) return CUDA_ERROR_INVALID_IMAGE;
    const std::string text = ptx::print(linked);
    const auto* const bytes = reinterpret_cast<const std::byte*>(text.c_str());
    ptx->assign(bytes, bytes + text.size() + 1);
    return CUDA_SUCCESS;
  } catch (const ptx::LinkError& error) {
    return fail(CUDA_ERROR_INVALID_IMAGE, error.what());
  }
}

}  // namespace bandsaw::image
