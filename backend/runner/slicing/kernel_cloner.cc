#include "backend/runner/slicing/kernel_cloner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "memory/base/log.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::runner {
namespace {

constexpr std::chrono::milliseconds kCompilerProbe{1};

}  // namespace

uint64_t KernelImage::variable(Device& device, const ContextRef& context, const std::string& name) {
  {
    std::lock_guard lock(mutex);
    if (const auto found = managed.find(name); found != managed.end()) return found->second;
  }
  uint64_t address = 0, bytes = 0;
  if (const ModuleRef from = module.lock()) {
    return device.module_global(from, name, &address, &bytes) == CUDA_SUCCESS ? address : 0;
  }
  const LibraryRef from = library.lock();
  if (!from || device.library_global(context, from, name, &address, &bytes) != CUDA_SUCCESS) return 0;
  return address;
}

std::shared_ptr<KernelImage> KernelCloner::keep(std::span<const std::byte> image) {
  auto kept = std::make_shared<KernelImage>();
  kept->ptx = KeptPtx::keep(image, gpu_, &budget_);
  return kept;
}

ptx::PointerParameters KernelCloner::pointers(const KernelImage& image, const std::string& kernel) {
  if (!image.ptx->runs()) return {.why_not = "the device may run other code than its PTX", .pointers = {}};
  std::lock_guard lock(making_);
  const auto read = program(image.ptx);
  if (!read.ok()) return {.why_not = read.status().message(), .pointers = {}};
  const std::vector<std::string_view> kernels = read.value()->kernels();
  if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) {
    return {.why_not = "its PTX has no such kernel", .pointers = {}};
  }
  return ptx::pointer_parameters(*read.value(), kernel);
}

Result<std::shared_ptr<const ptx::Program>> KernelCloner::program(const std::shared_ptr<const KeptPtx>& ptx) {
  if (!ptx->why_not().empty()) return Status::error(ENODATA, "{}", ptx->why_not());
  if (last_ptx_ == ptx) return last_program_;
  last_program_ = nullptr;  // makes room
  last_ptx_ = nullptr;
  auto read = ptx->read();
  if (!read.ok()) return read;
  last_ptx_ = ptx;
  last_program_ = read.value();
  return read;
}

// Blocks may be dropped at any moment where the kernel does not both read and write global memory, or does so apart.
// Else until they first store, unless only whole kernels count.
ptx::PersistentResult KernelCloner::make_persistent(const ptx::Program& program, const CloneRequest& request,
                                                    KernelClone* clone) {
  if (request.may_drop) {
    ptx::BlockIdempotence block = ptx::block_idempotence(program, request.kernel);
    block.irreversible.clear();
    const bool whatever = ptx::disjoint(block, {}, [](uint64_t) { return std::nullopt; });
    const bool always = block.not_strict.empty() && (request.reads_apart || whatever);
    const ptx::Flush flush = always                ? ptx::Flush::kAlways
                             : request.drop_strict ? ptx::Flush::kNo
                                                   : ptx::Flush::kUntilIrreversible;
    ptx::PersistentResult made =
        ptx::persistent(program, request.kernel,
                        {.one_dimensional = request.one_dimensional, .flush = flush, .told_apart = request.told_apart});
    const auto* kernel = std::get_if<ptx::PersistentKernel>(&made);
    if (kernel && (kernel->polls != 0 || flush == ptx::Flush::kNo)) {
      if (block.not_strict.empty() && !always) clone->if_apart = std::move(block);
      return made;
    }
  }
  return ptx::persistent(program, request.kernel,
                         {.one_dimensional = request.one_dimensional,
                          .limited = request.limited && !request.told_apart,
                          .told_apart = request.told_apart});
}

// The rewritten text, and where in its parameters what stands.
Result<KernelCloner::Rewritten> KernelCloner::rewrite(const CloneRequest& request) {
  auto read = program(request.image->ptx);
  if (!read.ok()) return read.status();
  const auto refused = [](const ptx::Refusal& refusal) { return Status::error(ENOTSUP, "{}", refusal.reason); };
  Rewritten made;
  if (request.variant == KernelVariant::kPersistent) {
    ptx::PersistentResult result = make_persistent(*read.value(), request, &made.clone);
    if (const auto* refusal = std::get_if<ptx::Refusal>(&result)) return refused(*refusal);
    auto& kernel = std::get<ptx::PersistentKernel>(result);
    made.fields = {{kernel.counter_at, 8}, {kernel.stop_at, 8}, {kernel.blocks_at, 4}, {kernel.grid_at, 12}};
    made.clone.counter_at = kernel.counter_at;
    made.clone.stop_at = kernel.stop_at;
    made.clone.blocks_at = kernel.blocks_at;
    if (kernel.redo_at != 0) {
      made.fields.insert(made.fields.end(), {{kernel.redo_at, 8}, {kernel.redo_end_at, 4}, {kernel.redo_mask_at, 4}});
    }
    if (kernel.limit_at != 0) {
      made.fields.insert(made.fields.end(), {{kernel.sm_counters_at, 8}, {kernel.limit_at, 8}});
    }
    if (kernel.places_at != 0) {
      made.fields.insert(made.fields.end(), {{kernel.places_at, 8}, {kernel.first_place_at, 4}});
    }
    made.clone.places_at = kernel.places_at;
    made.clone.first_place_at = kernel.first_place_at;
    made.clone.sm_counters_at = kernel.sm_counters_at;
    made.clone.limit_at = kernel.limit_at;
    made.clone.redo_at = kernel.redo_at;
    made.clone.redo_end_at = kernel.redo_end_at;
    made.clone.redo_mask_at = kernel.redo_mask_at;
    made.clone.whole_warps = kernel.whole_warps;
    made.take(&kernel);
    return made;
  }
  const bool counts = request.variant == KernelVariant::kCounting;
  ptx::SlicingResult result = ptx::slice(*read.value(), request.kernel, {request.one_dimensional, counts});
  if (const auto* refusal = std::get_if<ptx::Refusal>(&result)) return refused(*refusal);
  auto& kernel = std::get<ptx::SlicedKernel>(result);
  made.fields = {{kernel.first_at, 12}, {kernel.grid_at, 12}};
  made.clone.first_at = kernel.first_at;
  if (counts) made.fields.emplace_back(kernel.counts_at, 8);
  made.clone.counts_at = kernel.counts_at;
  made.take(&kernel);
  return made;
}

Result<std::shared_ptr<const KernelClone>> KernelCloner::make(const CloneRequest& request) {
  std::lock_guard lock(making_);
  auto rewritten = rewrite(request);
  if (!rewritten.ok()) return rewritten.status();
  Rewritten& sliced = rewritten.value();
  FunctionInfo original;
  if (device_->function_info(request.original, &original) != CUDA_SUCCESS) return Status::error(ENODEV, "it is gone");
  auto clone = std::make_shared<KernelClone>(std::move(sliced.clone));
  clone->original_bytes = original.info.parameter_bytes;
  clone->persistent = request.variant == KernelVariant::kPersistent;
  for (const ptx::BorrowedVariable& variable : sliced.variables) sliced.fields.emplace_back(variable.at, 8);
  for (const auto& [at, bytes] : sliced.fields) {
    if (at < clone->original_bytes || at > clone->parameters.size() || clone->parameters.size() - at < bytes) {
      return Status::error(EPROTO, "its PTX has other parameters than the device says");
    }
  }
  for (const ptx::BorrowedVariable& variable : sliced.variables) {
    const uint64_t address = request.image->variable(*device_, request.context, variable.name);
    if (address == 0) return Status::error(ENOENT, "a variable that it uses has no address");
    std::memcpy(clone->parameters.data() + variable.at, &address, sizeof address);
  }
  std::string log;
  const auto text = std::as_bytes(std::span(sliced.text.c_str(), sliced.text.size() + 1));
  CUresult loaded = device_->module_load(request.context, text, &clone->module, &log);
  if (loaded == CUDA_SUCCESS) loaded = device_->module_function(clone->module, sliced.name, &clone->function);
  Code code;
  code.function = clone->function;
  // A launch that is measured does not wait for a compiler.
  while (loaded == CUDA_SUCCESS && !device_->is_compiled(request.context, code)) {
    std::this_thread::sleep_for(kCompilerProbe);
  }
  if (loaded != CUDA_SUCCESS) {
    log::info("rewritten {}: error {}: {}", request.kernel, static_cast<int>(loaded), log.substr(0, 1000));
    return Status::error(ENOEXEC, "the device does not take the rewritten code");
  }
  // What was rewritten last is what was read last.
  clone->dependency = ptx::inter_block_dependency_of(*last_program_, request.kernel);
  clone->traits = CodeTraits::of(device_, sliced.text, clone->function, *last_program_, request.kernel);
  return std::shared_ptr<const KernelClone>(std::move(clone));
}

}  // namespace bandsaw::runner
