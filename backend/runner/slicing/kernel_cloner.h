// Rewrites kernels of a process and loads what comes out beside the originals.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/device/device.h"
#include "backend/runner/slicing/kept_ptx.h"
#include "backend/runner/slicing/kernel_descriptor.h"
#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/idempotence.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/pointers.h"

namespace bandsaw::runner {

// What rewriting needs of a library or module.
struct KernelImage {
  std::shared_ptr<const KeptPtx> ptx;
  std::weak_ptr<Library> library;  // this or `module`
  std::weak_ptr<Module> module;
  std::mutex mutex;
  std::map<std::string, uint64_t> managed;  // guarded by mutex: where the guest put managed variables
  std::unordered_map<std::string, std::weak_ptr<class KnownKernel>> kernels;  // guarded by the catalogue's mutex

  // 0: it has none of that name.
  uint64_t variable(Device& device, const ContextRef& context, const std::string& name);
};

// A rewritten kernel in one context.
struct KernelClone {
  ModuleRef module;
  FunctionRef function;
  // Offsets in the parameters (vgpu-sched/ptx/slice.h and persistent.h).
  size_t grid_at = 0;
  size_t first_at = 0;                                    // of grid slices
  size_t counts_at = 0;                                   // of grid slices that count; 0: of others
  size_t counter_at = 0, stop_at = 0, blocks_at = 0;      // of persistent blocks
  size_t redo_at = 0, redo_end_at = 0, redo_mask_at = 0;  // of persistent blocks that may drop a block; else 0
  size_t sm_counters_at = 0, limit_at = 0;                // of persistent blocks that are limited on each SM; else 0
  size_t places_at = 0, first_place_at = 0;               // of persistent blocks that are told apart; else 0
  bool whole_warps = false;
  bool persistent = false;
  // Of persistent blocks that may drop a block until it first stores: where a launch reads and writes. It may drop one
  // at any moment if these lie apart. Without `irreversible`.
  std::optional<ptx::BlockIdempotence> if_apart;
  ptx::InterBlockDependency dependency = ptx::InterBlockDependency::kAny;
  CodeTraits traits;
  size_t original_bytes = 0;          // of the original's parameters, with which the clone's begin
  std::vector<std::byte> parameters;  // addresses of variables are filled in, the rest is 0
};

// What is to be rewritten.
struct CloneRequest {
  std::shared_ptr<KernelImage> image;
  std::string kernel;
  Code original;
  ContextRef context;
  bool one_dimensional = false;
  KernelVariant variant = KernelVariant::kSliced;
  bool limited = false;  // of persistent blocks: their number can change while they run, unless they may drop a block
  bool told_apart = false;  // of persistent blocks: single SMs can be freed; they are not limited then
  bool may_drop = false;  // of persistent blocks: they are to be able to drop a block, if that is right for the kernel
  bool drop_strict = false;  // of those: only where a block may be dropped at every moment
  bool reads_apart = false;  // of those: for launches that read nothing of what they write (KernelClone::if_apart)
};

// Thread-safe.
class KernelCloner {
 public:
  // `gpu`: compute capability, 90 for 9.0; 0: takes PTX for any GPU.
  KernelCloner(Device* device, uint32_t gpu) : device_(device), gpu_(gpu) {}

  std::shared_ptr<KernelImage> keep(std::span<const std::byte> image);
  // Rewrites and loads; an error says why that kernel stays as it is. Takes long, and one is made after the other.
  Result<std::shared_ptr<const KernelClone>> make(const CloneRequest& request);
  // Through which parameters the kernel reaches memory. Takes as long.
  ptx::PointerParameters pointers(const KernelImage& image, const std::string& kernel);

 private:
  struct Rewritten {
    std::string text, name;
    std::vector<ptx::BorrowedVariable> variables;
    std::vector<std::pair<size_t, size_t>> fields;  // offset and bytes of what is written beside the variables
    KernelClone clone;

    // What both variants have.
    template <typename Kernel>
    void take(Kernel* kernel) {
      text = std::move(kernel->text);
      name = std::move(kernel->name);
      variables = std::move(kernel->variables);
      clone.grid_at = kernel->grid_at;
      clone.parameters.resize(kernel->parameter_bytes);
    }
  };

  Result<Rewritten> rewrite(const CloneRequest& request);
  static ptx::PersistentResult make_persistent(const ptx::Program& program, const CloneRequest& request,
                                               KernelClone* clone);
  Result<std::shared_ptr<const ptx::Program>> program(const std::shared_ptr<const KeptPtx>& ptx);

  Device* const device_;
  const uint32_t gpu_;
  PtxBudget budget_;
  std::mutex making_;
  // What was read last, as kernels of a library come one after the other. Guarded by making_, as what follows.
  std::shared_ptr<const KeptPtx> last_ptx_;
  std::shared_ptr<const ptx::Program> last_program_;
};

}  // namespace bandsaw::runner
