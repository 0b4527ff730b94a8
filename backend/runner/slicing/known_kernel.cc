#include "backend/runner/slicing/known_kernel.h"

#include <algorithm>
#include <iterator>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// A search takes a dozen launches. A kernel whose search is longer, because of others' short work or its own pauses, is
// planned with what is known by then.
constexpr uint32_t kAloneMost = 32;

}  // namespace

std::array<uint32_t, 7> LaunchShape::key_of(const Launch& launch) {
  return {launch.grid[0],  launch.grid[1],  launch.grid[2],     launch.block[0],
          launch.block[1], launch.block[2], launch.shared_bytes};
}

LaunchShape::LaunchShape(const Launch& launch, uint64_t its_blocks, uint64_t its_wave, uint32_t sms)
    : key(key_of(launch)), blocks(its_blocks), wave(its_wave), size(blocks, wave, sms) {}

void LaunchShape::learn_whole(uint64_t nanoseconds) {
  typical_ns = typical_ns == 0 ? nanoseconds : (3 * typical_ns + nanoseconds) / 4;
  size.learn_whole(nanoseconds);
}

bool LaunchShape::wants_alone() {
  if (!persistent_tuner.searches()) alone = 0;
  return persistent_tuner.searches() && alone++ < kAloneMost;
}

void LaunchShape::learn_cut(uint64_t slice, std::optional<int> tuned_blocks, uint64_t nanoseconds) {
  // The kernel got shorter, or the first measurement included more than the kernel.
  if (nanoseconds < typical_ns) typical_ns = (3 * typical_ns + nanoseconds) / 4;
  if (slice != 0) size.learn_sliced(slice, nanoseconds);
  if (!tuned_blocks) return;
  const bool searched = persistent_tuner.searches();
  persistent_tuner.observe(*tuned_blocks, static_cast<slice::Time>(nanoseconds));
  if (searched && !persistent_tuner.searches()) {
    log::info("a kernel of {} blocks runs best with {} of {} on a multiprocessor: {}", blocks, persistent_tuner.next(),
              persistent_tuner.most(), persistent_tuner.found());
  }
}

std::optional<BlockCode> KnownKernel::block_code(Device& device, const Code& code) {
  const uint32_t now = attributes.load();
  if (block_code_ && block_code_at_ == now) return block_code_;
  FunctionInfo info;
  if (device.function_info(code, &info) != CUDA_SUCCESS) return std::nullopt;
  const auto attribute = [&info](CUfunction_attribute which) {
    return static_cast<uint32_t>(std::max(0, info.info.attributes[which]));
  };
  block_code_at_ = now;
  block_code_ = {attribute(CU_FUNC_ATTRIBUTE_NUM_REGS), attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)};
  return block_code_;
}

std::shared_ptr<LaunchShape> KnownKernel::find_shape(const Launch& launch) const {
  const auto key = LaunchShape::key_of(launch);
  for (const auto& shape : shapes) {
    if (shape->key == key) return shape;
  }
  return nullptr;
}

std::pair<std::shared_ptr<KernelClonePlace>, bool> KnownKernel::clone_place(const CloneRequest& request) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(clones_.begin(), clones_.end(), [&](const auto& place) {
    const CloneRequest& its = place->request;
    return its.context == request.context && its.one_dimensional == request.one_dimensional &&
           its.variant == request.variant && its.reads_apart == request.reads_apart;
  });
  if (found != clones_.end()) return {*found, false};
  clones_.push_back(std::make_shared<KernelClonePlace>());
  clones_.back()->request = request;
  return {clones_.back(), true};
}

void KnownKernel::forget_clones(const Context* context, std::vector<std::shared_ptr<KernelClonePlace>>* gone) {
  std::lock_guard lock(mutex_);
  const auto of_it = [&](const std::shared_ptr<KernelClonePlace>& place) {
    return place->request.context.get() == context;
  };
  std::copy_if(clones_.begin(), clones_.end(), std::back_inserter(*gone), of_it);
  std::erase_if(clones_, of_it);
}

}  // namespace bandsaw::runner
