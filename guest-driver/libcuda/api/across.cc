#include "guest-driver/libcuda/api/across.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/copy_cut.h"
#include "guest-driver/libcuda/api/peer.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kStages = 2;  // one is written while the next is read
constexpr uint64_t kStageBytes = 2u << 20;
constexpr uint64_t kThere = VGPU_STREAM_PER_THREAD;  // ordered with the legacy stream of its device, too

// Before anything is waited for.
CUresult may_wait(uint64_t stream) {
  const CUresult result = check_may_wait();
  return result == CUDA_SUCCESS ? check_across(stream) : result;
}

// Host memory between two devices, kept for the next copy.
class Stages {
 public:
  ~Stages() {
    if (!block_.address) return;
    std::lock_guard lock(kept().mutex);
    kept().free.push_back(block_);
  }
  CUresult take(VirtualGpu& gpu) {
    {
      std::lock_guard lock(kept().mutex);
      auto& free = kept().free;
      if (!free.empty()) {
        block_ = free.back();
        free.pop_back();
        return CUDA_SUCCESS;
      }
    }
    return host_blocks().allocate(gpu, kStages * kStageBytes, &block_);
  }
  std::byte* at(uint64_t piece) const {
    return static_cast<std::byte*>(block_.address) + piece % kStages * kStageBytes;
  }

 private:
  struct Kept {
    std::mutex mutex;
    std::vector<SharedBlock> free;
  };
  static Kept& kept() {
    static auto* const all = new Kept;
    return *all;
  }
  SharedBlock block_;
};

CUresult copy_noted(Call& call, const vgpu_copy& copy, uint64_t stream, Bounce* done) {
  CUresult result = call.completion(done);
  if (result == CUDA_SUCCESS) result = wire::copy(call, copy, stream, done->done);
  if (result == CUDA_SUCCESS) call.bounce_used(*done);
  return result;
}

// The device that has the memory, or `here` where that one has it mapped. nullptr: host memory, which every device
// reaches.
VirtualGpu* gpu_of_end(VirtualGpu& here, const vgpu_copy_end& end, Side side) {
  if (side == Side::kArray) return gpu_of_part(part_of_handle(end.address));
  const auto range = AddressMap::get().find(end.address);
  if (!range) return gpu_of_address(end.address);
  if (!range->on_device()) return nullptr;
  VirtualGpu& owner = gpu_of(*range);
  if (&owner == &here) return &here;
  const bool mapped = range->kind == RangeKind::kMapped;
  return (mapped ? is_mapped_on(here, *range) : is_shown(here, *range)) ? &here : &owner;
}

// From one device's memory into stages, and from there to the other's.
CUresult move_pieces(Call& to, Call& from, uint64_t stream, const vgpu_copy& copy, const Stages& stages) {
  Pieces pieces(copy, kStageBytes);
  Piece piece;
  Bounce written[kStages];
  uint64_t count = 0;
  CUresult result = CUDA_SUCCESS;
  for (; result == CUDA_SUCCESS && pieces.next(&piece); ++count) {
    Bounce& stage_free = written[count % kStages];
    Bounce read;
    if (count >= kStages) result = to.wait_done(stage_free);
    const vgpu_copy in = record_of(copy, piece, stages.at(count), &vgpu_copy::destination);
    if (result == CUDA_SUCCESS) result = copy_noted(from, in, kThere, &read);
    if (result == CUDA_SUCCESS) result = from.wait_done(read);
    const vgpu_copy out = record_of(copy, piece, stages.at(count), &vgpu_copy::source);
    if (result == CUDA_SUCCESS) result = copy_noted(to, out, stream, &stage_free);
  }
  // The stages are used again, also after a copy that failed half-way.
  for (uint64_t i = 0; i < std::min(count, kStages); ++i) {
    const CUresult one = written[i].done.token ? to.wait_done(written[i]) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) result = one;
  }
  return result;
}

// The destination is the call's device's, `from` has the source.
CUresult pull(Call& call, uint64_t stream, VirtualGpu& from, vgpu_copy copy, Side destination, Side source) {
  const Extent extent{copy.width_bytes, copy.height, copy.depth};
  Place place;
  CUresult result = resolve_end(extent, destination, &copy.destination, &place);
  if (result == CUDA_SUCCESS) result = resolve_end(extent, source, &copy.source, &place);
  Stages stages;
  if (result == CUDA_SUCCESS) result = stages.take(call.gpu());
  if (result == CUDA_SUCCESS) result = wire::stream_synchronize(call, stream);
  if (result != CUDA_SUCCESS) return result;
  Call there(from);
  return move_pieces(call, there, stream, copy, stages);
}

}  // namespace

CUresult check_across(uint64_t stream) {
  bool capturing = false;
  const CUresult result = is_capturing(stream, &capturing);
  if (result != CUDA_SUCCESS || !capturing) return result;
  log_unsupported("capturing work of several devices into one graph");
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult do_across(Call& call, uint64_t stream, VirtualGpu& gpu, const WorkThere& work) {
  CUresult result = may_wait(stream);
  if (result == CUDA_SUCCESS) result = wire::stream_synchronize(call, stream);
  if (result != CUDA_SUCCESS) return result;
  Call there(gpu);
  result = work(there, kThere);
  return result == CUDA_SUCCESS ? wire::stream_synchronize(there, kThere) : result;
}

bool transfer_across(Call& call, const vgpu_copy& copy, Side destination, Side source, uint64_t stream,
                     CUresult* result) {
  VirtualGpu* const here = &call.gpu();
  VirtualGpu* const to = gpu_of_end(*here, copy.destination, destination);
  VirtualGpu* const from = gpu_of_end(*here, copy.source, source);
  if ((!to || to == here) && (!from || from == here)) return false;
  if (to == here && from) {
    *result = may_wait(stream);
    if (*result == CUDA_SUCCESS) *result = pull(call, stream, *from, copy, destination, source);
    return true;
  }
  VirtualGpu& there = to ? *to : *from;
  *result = do_across(call, stream, there, [&](Call& far, uint64_t on) {
    return from && from != &there ? pull(far, on, *from, copy, destination, source)
                                  : transfer(far, copy, destination, source, on, true);
  });
  return true;
}

}  // namespace bandsaw::libcuda
