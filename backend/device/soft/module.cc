#include "backend/device/soft/module.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "backend/device/image/image.h"
#include "backend/device/image/units.h"
#include "backend/device/soft/fault.h"
#include "memory/base/log.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kMostVariables = uint64_t{1} << 40;  // bytes; shares are far below, and sums do not wrap

}  // namespace

bool fits(const Variable::Piece& piece, const Variable& variable) {
  return piece.offset <= variable.bytes && piece.bytes.size() <= variable.bytes - piece.offset;
}

Image::Image(std::unique_ptr<Program> program, uint32_t sm) : program_(std::move(program)), sm_(sm) {}

CUresult Image::kernel(const std::string& name, const KernelCode** code) {
  std::string log;
  *code = program_->kernel(name, &log);
  if (!*code && log.empty()) return CUDA_ERROR_NOT_FOUND;
  if (!*code) {
    log::error("kernel {}: {}", name, log);
    return CUDA_ERROR_INVALID_PTX;
  }
  std::lock_guard lock(settings_mutex_);
  const auto [at, fresh] = settings_.try_emplace(name);
  if (!fresh) return CUDA_SUCCESS;
  KernelSettings& settings = at->second;
  settings.max_dynamic_shared = std::max(0, 48 * 1024 - static_cast<int32_t>((*code)->static_shared_bytes));
  for (int i = 0; i < 3; ++i) settings.cluster[i] = static_cast<int32_t>((*code)->required_cluster[i]);
  return CUDA_SUCCESS;
}

KernelSettings& Image::settings(const std::string& name) {
  std::lock_guard lock(settings_mutex_);
  return settings_.find(name)->second;
}

CUresult LoadedImage::make(const std::shared_ptr<Image>& image, const std::shared_ptr<Memory>& memory,
                           std::shared_ptr<LoadedImage>* loaded, std::string* log) {
  std::shared_ptr<LoadedImage> made(new LoadedImage);
  made->image_ = image;
  made->memory_ = memory;
  made->code_share_ = memory->new_charge();
  if (!made->code_share_.resize(image->program().code_bytes())) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult result = made->place(*image, log)) return result;
  const auto with_image = [image](Program::Loaded* code) { delete code; };
  made->code_ = {image->program().load(made->addresses_, log).release(), with_image};
  if (!made->code_) {
    log::error("loading code: {}", *log);
    return CUDA_ERROR_INVALID_PTX;
  }
  if (const CUresult result = made->initialise(*image, log)) return result;
  *loaded = std::move(made);
  return CUDA_SUCCESS;
}

LoadedImage::~LoadedImage() {
  code_.reset();
  memory_->release_owner(this);
}

// One allocation for all variables, as modules have many small ones.
CUresult LoadedImage::place(Image& image, std::string* log) {
  uint64_t total = 0;
  std::vector<std::pair<const Variable*, uint64_t>> offsets;
  for (const Variable& variable : image.program().variables()) {
    if (variable.managed) {
      std::lock_guard lock(image.managed_mutex);
      const auto bound = image.managed.find(variable.name);
      if (bound == image.managed.end()) {
        *log = fmt::format("managed variable {} has no address: its library was not bound", variable.name);
        log::error("{}", *log);
        return CUDA_ERROR_NOT_SUPPORTED;
      }
      addresses_[variable.name] = bound->second;
      continue;
    }
    const uint64_t align = std::max<uint64_t>(variable.align, 16);
    if (align > 4096 || (align & (align - 1))) {
      *log = fmt::format("variable {}: alignment out of range", variable.name);
      return CUDA_ERROR_INVALID_PTX;
    }
    total = (total + align - 1) & ~(align - 1);
    offsets.emplace_back(&variable, total);
    if (variable.bytes > kMostVariables - total) {
      *log = fmt::format("variable {}: the module's variables are larger than {} bytes", variable.name, kMostVariables);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    total += std::max<uint64_t>(variable.bytes, 1);
  }
  if (offsets.empty()) return CUDA_SUCCESS;
  uint64_t base = 0;
  if (const CUresult result = memory_->allocate(total, Use::kPrivate, this, &base)) return result;
  for (const auto& [variable, offset] : offsets) addresses_[variable->name] = base + offset;
  return CUDA_SUCCESS;
}

CUresult LoadedImage::initialise(Image& image, std::string* log) {
  for (const Variable& variable : image.program().variables()) {
    auto* at = reinterpret_cast<std::byte*>(addresses_[variable.name]);
    std::shared_ptr<std::byte> pages;
    if (variable.managed) {  // shared by all contexts: only once
      std::lock_guard lock(image.managed_mutex);
      if (!image.managed_ready.insert(variable.name).second) continue;
      pages = std::move(image.managed_pages[variable.name]);
    }
    const auto write = [&](uint64_t offset, const void* from, size_t bytes) {
      // A managed variable lies in the program's pages; where it moves, the device may have the newest bytes.
      const bool moves = pages && pages.get() != at;
      if (moves) static_cast<void>(copy_guarded(at + offset, from, bytes));
      if (copy_guarded((moves ? pages.get() : at) + offset, from, bytes)) return true;
      *log = fmt::format("variable {}: nothing is mapped at its address", variable.name);
      return false;
    };
    // A managed variable got its bytes when it was bound; only addresses are missing there.
    if (!variable.managed) {
      for (const Variable::Piece& piece : variable.initial) {
        if (!fits(piece, variable) || !write(piece.offset, piece.bytes.data(), piece.bytes.size())) {
          return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
      }
    }
    for (const Variable::Pointer& pointer : variable.pointers) {
      const auto found = addresses_.find(pointer.target);
      const uint64_t target = found != addresses_.end() ? found->second : code_->function_address(pointer.target);
      if (!target || pointer.offset > variable.bytes || variable.bytes - pointer.offset < pointer.bytes) {
        *log =
            fmt::format("variable {}: initial value points at {}, which is not there", variable.name, pointer.target);
        return CUDA_ERROR_INVALID_PTX;
      }
      const uint64_t address = target + static_cast<uint64_t>(pointer.addend);
      const uint64_t value = pointer.mask ? (address & pointer.mask) >> std::countr_zero(pointer.mask) : 0;
      if (!write(pointer.offset, &value, std::min<size_t>(sizeof value, pointer.bytes))) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
      }
    }
  }
  return CUDA_SUCCESS;
}

CompileJobRef LoadedImage::job(const std::string& kernel, Compiler& compiler) {
  std::lock_guard lock(jobs_mutex_);
  if (!std::exchange(compiler_known_, true)) {
    const auto start = [&compiler, code = std::weak_ptr(code_)](const std::string& name, const std::string& part,
                                                                Program::Loaded::Make make) {
      // It may be compiled still when no launch needs it any more.
      const CompileJobRef job =
          compiler.start(name, part, [held = code.lock(), make = std::move(make)](std::string* log) {
            return reinterpret_cast<KernelEntry>(make(log));
          });
      return [job] { return reinterpret_cast<void*>(job->wait()); };
    };
    code_->compile_by(start, compiler.at_once());
  }
  CompileJobRef& job = jobs_[kernel];
  if (!job) {
    // The code lives as long as this, and this as long as the job's owner lets it.
    job = compiler.start(kernel, "", [code = code_, kernel](std::string* log) { return code->entry(kernel, log); });
  }
  return job;
}

KernelEntry LoadedImage::entry(const std::string& kernel, Compiler& compiler) { return job(kernel, compiler)->wait(); }

bool LoadedImage::is_compiled(const std::string& kernel, Compiler& compiler) { return job(kernel, compiler)->done(); }

bool LoadedImage::variable(const std::string& name, uint64_t* address, uint64_t* bytes) const {
  for (const Variable& variable : image_->program().variables()) {
    if (variable.name != name) continue;
    *address = addresses_.at(name);
    *bytes = variable.bytes;
    return true;
  }
  return false;
}

bool LoadedImage::variable_around(uint64_t address, uint64_t* base, uint64_t* bytes) const {
  for (const Variable& variable : image_->program().variables()) {
    const uint64_t at = addresses_.at(variable.name);
    if (address < at || address - at >= variable.bytes) continue;
    *base = at;
    *bytes = variable.bytes;
    return true;
  }
  return false;
}

CodeView view(const Code& code) {
  if (const auto* kernel = dynamic_cast<const SoftKernel*>(code.kernel.get())) {
    return {kernel->image, kernel->code, nullptr};
  }
  if (const auto* function = dynamic_cast<const SoftFunction*>(code.function.get())) {
    return {function->image, function->code, function->loaded};
  }
  return {};
}

CUresult read_image(std::span<const std::byte> bytes, const CompileOptions& options, std::shared_ptr<Image>* image,
                    std::string* log) {
  image::PtxChoice choice;
  // PTX for later GPUs too: libraries have it for the newest one only, beside machine code for others.
  if (const CUresult result = image::find_ptx(bytes, &choice, log)) {
    log::error("code image: {}", *log);
    return result;
  }
  std::string ptx;
  if (const CUresult result = image::link_units(std::move(choice.units), &ptx, log)) {
    log::error("code image: {}", *log);
    return result;
  }
  std::unique_ptr<Program> program = compile(ptx, options, log);
  if (!program) {
    log::error("PTX: {}", *log);
    return CUDA_ERROR_INVALID_PTX;
  }
  *image = std::make_shared<Image>(std::move(program), choice.sm);
  return CUDA_SUCCESS;
}

CUresult load_image(const std::shared_ptr<Image>& image, SoftContext& context, const std::shared_ptr<Memory>& memory,
                    std::shared_ptr<LoadedImage>* loaded, std::string* log) {
  std::lock_guard lock(context.code_mutex);
  const auto found = context.images.find(image.get());
  if (found != context.images.end()) {
    *loaded = found->second;
    return CUDA_SUCCESS;
  }
  if (const CUresult result = LoadedImage::make(image, memory, loaded, log)) return result;
  context.images.emplace(image.get(), *loaded);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
