// Launches: CUDA's limits, the launch plan, occupancy, and what programs ask about functions.
#include <algorithm>
#include <bit>

#include "backend/device/soft/sm_limits.h"
#include "backend/device/soft/soft_device.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Registers here are an estimate from the PTX; the assembler would have fitted them to the largest block and to the
// blocks that are to be on an SM. SMs give them in eights, so a block that may be launched has room.
uint32_t fitted_registers(const KernelCode& code) {
  const uint32_t block = static_cast<uint32_t>(round_up(std::clamp(code.max_threads, 1u, kMaxBlockThreads), 32));
  const uint32_t threads = std::clamp(code.least_blocks * block, block, kSmThreads);
  const uint32_t room = std::min(255u, kSmRegisters / threads / 8 * 8);
  return std::min(std::max(code.registers, 16u), std::min(room, code.most_registers));
}

std::shared_ptr<LaunchRecording> begin_recording(Recorder& recorder, const LaunchPlan& plan, const CodeView& code) {
  const auto timing_code = code.image->program().timing_code(plan.kernel);
  if (!timing_code) return nullptr;
  timing::LaunchTrace launch;
  launch.kernel = plan.kernel;
  std::copy(std::begin(plan.grid), std::end(plan.grid), launch.grid);
  std::copy(std::begin(plan.shape->block), std::end(plan.shape->block), launch.block);
  launch.shared_bytes = plan.shared_bytes;
  launch.registers = fitted_registers(*code.code);
  launch.code = *timing_code;
  return recorder.begin(std::move(launch));
}

uint32_t blocks_per_sm(const KernelCode& code, const KernelSettings& settings, uint32_t threads,
                       uint64_t shared_bytes) {
  const uint32_t warps = (threads + 31) / 32;
  if (threads == 0 || threads > kMaxBlockThreads || threads > code.max_threads) return 0;
  const uint64_t shared = round_up(code.static_shared_bytes + shared_bytes, 128) + kReservedShared;
  // What needs no permission counts, even where a program has asked for less.
  const int64_t free = int64_t{kDefaultBlockShared} - static_cast<int64_t>(code.static_shared_bytes);
  const int64_t allowed = settings.max_dynamic_shared;
  if (static_cast<int64_t>(shared_bytes) > std::max(allowed, free) ||
      code.static_shared_bytes + shared_bytes > kMaxBlockShared) {
    return 0;
  }
  const uint32_t warp_registers = static_cast<uint32_t>(round_up(uint64_t{fitted_registers(code)} * 32, 256));
  const uint64_t by_registers = kSmRegisters / warp_registers / warps;
  return static_cast<uint32_t>(
      std::min({uint64_t{kSmBlocks}, uint64_t{kSmThreads} / 32 / warps, by_registers, kSmShared / shared}));
}

uint32_t blocks_per_sm(const CodeView& code, uint32_t threads, uint64_t shared_bytes) {
  return blocks_per_sm(*code.code, code.image->settings(code.code->name), threads, shared_bytes);
}

// Whether the launch asks for a cluster, and the kernel requires another one in this dimension.
bool is_other_cluster(const Launch& launch, const KernelSettings& settings, int i) {
  const auto own = static_cast<uint32_t>(std::max<int32_t>(settings.cluster[i], 1));
  return settings.cluster[0] > 0 && launch.cluster[0] != 0 && std::max(launch.cluster[i], 1u) != own;
}

}  // namespace

// The launch's cluster, or else the kernel's; 0 where there is none.
CUresult SoftDevice::find_cluster(const Launch& launch, const CodeView& code, uint32_t (&cluster)[3]) {
  const KernelSettings& settings = code.image->settings(code.code->name);
  const bool asked = launch.cluster[0] != 0, required = settings.cluster[0] > 0;
  uint64_t blocks = 1;
  for (int i = 0; i < 3; ++i) {
    const auto own = static_cast<uint32_t>(std::max<int32_t>(settings.cluster[i], 1));
    const uint32_t wanted = std::max(launch.cluster[i], 1u);
    if (is_other_cluster(launch, settings, i)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    cluster[i] = asked ? wanted : required ? own : 0;
    blocks *= std::max(cluster[i], 1u);
    if (blocks > kMaxCluster || (cluster[i] && launch.grid[i] % cluster[i])) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return blocks > (settings.cluster_non_portable ? kMaxCluster : kPortableCluster) ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                                                                   : CUDA_SUCCESS;
}

CUresult SoftDevice::check_shape(const Launch& launch, const CodeView& code) {
  constexpr uint32_t kMaxGrid[3] = {kMaxGridX, kMaxGridYZ, kMaxGridYZ};
  constexpr uint32_t kMaxBlock[3] = {1024, 1024, 64};
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.grid[i] > kMaxGrid[i]) return CUDA_ERROR_INVALID_VALUE;
    if (launch.block[i] == 0 || launch.block[i] > kMaxBlock[i]) return CUDA_ERROR_INVALID_VALUE;
  }
  uint32_t cluster[3];
  if (const CUresult refused = find_cluster(launch, code, cluster)) return refused;
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads > kMaxBlockThreads) return CUDA_ERROR_INVALID_VALUE;
  if (threads > code.code->max_threads) return CUDA_ERROR_INVALID_VALUE;
  const int64_t dynamic = code.image->settings(code.code->name).max_dynamic_shared;
  if (int64_t{launch.shared_bytes} > dynamic ||
      uint64_t{launch.shared_bytes} + code.code->static_shared_bytes > kMaxBlockShared) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (launch.parameters.size() < code.code->parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!launch.cooperative) return CUDA_SUCCESS;
  const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  const uint64_t resident = uint64_t{sms_} * blocks_per_sm(code, static_cast<uint32_t>(threads), launch.shared_bytes);
  return blocks > resident ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

// The words of a cooperative launch's grid barrier, in device memory as the kernel reads them there.
CUresult SoftDevice::make_workspace(LaunchPlan* plan) {
  uint64_t address = 0;
  const auto allocate = [&] { return memory_->allocate(256, Use::kPrivate, nullptr, &address); };
  if (const CUresult result = with_room(allocate)) return result;
  plan->grid_workspace = address;
  plan->workspace = std::shared_ptr<void>(nullptr, [memory = memory_, address](void*) { memory->release(address); });
  return CUDA_SUCCESS;
}

std::shared_ptr<const BlockShape> SoftDevice::block_shape(const uint32_t (&block)[3]) {
  constexpr size_t kKept = 32;
  std::lock_guard lock(shapes_mutex_);
  for (const auto& shape : shapes_) {
    if (std::equal(std::begin(block), std::end(block), shape->block)) return shape;
  }
  if (shapes_.size() >= kKept) shapes_.erase(shapes_.begin());
  shapes_.push_back(make_block_shape(block));
  return shapes_.back();
}

// Pages of local memory come as kernels touch them, and stay with the workers' fibers. What a launch may touch beyond
// what any context is good for counts against the share, the most that launches have wanted.
CUresult SoftDevice::charge_local(const LaunchPlan& plan) {
  constexpr uint64_t kFree = 16 << 20;
  const uint64_t lanes = uint64_t{plan.cluster_blocks()} * plan.shape->warps.size() * kWarpLanes;
  const uint64_t wanted = plan.local_bytes * lanes * static_cast<uint64_t>(threads_);
  std::lock_guard lock(local_mutex_);
  if (wanted <= kFree + local_share_.bytes()) return CUDA_SUCCESS;
  return with_room([&] { return local_share_.resize(wanted - kFree) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; });
}

CUresult SoftDevice::plan_launch(const SoftContextRef& context, const Launch& launch, LaunchPlan* plan) {
  CodeView code = view(launch.code);
  if (!code.code) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = check_shape(launch, code)) return refused;
  if (!code.loaded) {
    std::string log;
    const auto load = [&] { return load_image(code.image, *context, memory_, &code.loaded, &log); };
    if (const CUresult refused = with_room(load)) return refused;
  }
  plan->entry = code.loaded->entry(code.code->name, compiler_);
  if (!plan->entry) return CUDA_ERROR_INVALID_PTX;
  plan->kernel = code.code->name;
  plan->code = code.loaded;
  plan->shape = block_shape(launch.block);
  std::copy(std::begin(launch.grid), std::end(launch.grid), plan->grid);
  uint32_t cluster[3];
  if (const CUresult refused = find_cluster(launch, code, cluster)) return refused;
  for (int i = 0; i < 3; ++i) plan->cluster[i] = std::max(cluster[i], 1u);
  plan->explicit_cluster = cluster[0] != 0;
  plan->dynamic_shared_bytes = launch.shared_bytes;
  plan->shared_bytes = launch.shared_bytes + code.code->static_shared_bytes;
  plan->reserved_shared = code.code->uses_reserved_shared;
  plan->local_bytes = code.code->local_bytes;
  plan->stack_bytes = code.code->stack_bytes;
  if (const CUresult refused = charge_local(*plan)) return refused;
  plan->cooperative = launch.cooperative;
  plan->priority = launch.priority;
  plan->window_base = config_.window_base;
  plan->sms = sms_;
  // Programs may rely on it that as many blocks as fit on all SMs are there together. Twice a worker's part of them:
  // workers take blocks as they come.
  const uint64_t resident = uint64_t{sms_} * blocks_per_sm(code, plan->shape->threads, launch.shared_bytes);
  plan->waiting_blocks = static_cast<uint32_t>(2 * resident / static_cast<uint64_t>(threads_) + 1);
  plan->services = context.get();
  plan->device = this;
  plan->context = context;
  plan->textures = &context->textures;
  plan->parameter_bytes = code.code->parameter_bytes;
  plan->parameters.resize(round_up(code.code->parameter_bytes, 16) + 16);
  std::copy_n(launch.parameters.begin(), code.code->parameter_bytes, plan->parameters.begin());
  if (recorder_) plan->recording = begin_recording(*recorder_, *plan, code);
  return launch.cooperative ? make_workspace(plan) : CUDA_SUCCESS;
}

CUresult SoftDevice::make_launch(const SoftContextRef& context, int priority, const Launch& launch, OpRef* op,
                                 uint32_t sms) {
  LaunchPlan plan;
  if (sms && launch.cooperative) {  // its blocks must all be there at once
    const CodeView code = view(launch.code);
    const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    if (!code.code) return CUDA_ERROR_INVALID_HANDLE;
    if (blocks > uint64_t{sms} * blocks_per_sm(code, threads, launch.shared_bytes)) {
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
  }
  if (const CUresult refused = plan_launch(context, launch, &plan)) return refused;
  if (sms) {
    plan.workers = std::max<uint32_t>(1, static_cast<uint32_t>(static_cast<uint64_t>(threads_) * sms / sms_));
    plan.sms = sms;
  }
  if (plan.priority == 0) plan.priority = priority;
  *op = std::make_shared<KernelOp>(context, std::move(plan), next_grid_++, compute_, host_, meters_.work(kCompute));
  return CUDA_SUCCESS;
}

CUresult SoftDevice::launch(const StreamRef& stream, const Launch& launch) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& on = as(stream);
  OpRef op;
  if (const CUresult refused = make_launch(on.context, on.priority, launch, &op, on.sms)) return refused;
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(on)) {
      NodeContent content;
      content.type = CU_GRAPH_NODE_TYPE_KERNEL;
      content.launch = launch;
      content.parameter_bytes.assign(launch.parameters.begin(), launch.parameters.end());
      return capture_node(on, content, nullptr);
    }
    if (const CUresult refused = check_capture(on)) return refused;
  }
  return enqueue(on, op);
}

CUresult SoftDevice::occupancy(const Code& code, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) {
  if (const CUresult error = scheduler_.error()) return error;
  const CodeView found = view(code);
  if (!found.code) return CUDA_ERROR_INVALID_HANDLE;
  if (block_threads == 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = shared_bytes > kMaxBlockShared ? 0 : blocks_per_sm(found, block_threads, shared_bytes);
  return CUDA_SUCCESS;
}

// Any SMs may have the blocks of a cluster. Libraries ask about sizes that no launch may have, too: there is no room.
CUresult SoftDevice::occupancy_clusters(const ContextRef&, const Launch& launch, uint32_t* clusters,
                                        uint32_t* largest) {
  if (const CUresult error = scheduler_.error()) return error;
  if (!launch.code.kernel && !launch.code.function) {
    KernelSettings all;
    all.cluster_non_portable = 1;
    all.max_dynamic_shared = static_cast<int32_t>(kMaxBlockShared);
    return room_for_clusters(launch, {}, all, clusters, largest);
  }
  const CodeView found = view(launch.code);
  if (!found.code) return CUDA_ERROR_INVALID_HANDLE;
  return room_for_clusters(launch, *found.code, found.image->settings(found.code->name), clusters, largest);
}

CUresult SoftDevice::room_for_clusters(const Launch& launch, const KernelCode& code, const KernelSettings& settings,
                                       uint32_t* clusters, uint32_t* largest) const {
  uint64_t size = 1;
  for (int i = 0; i < 3; ++i) {
    const auto own = static_cast<uint32_t>(std::max<int32_t>(settings.cluster[i], 1));
    if (is_other_cluster(launch, settings, i)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    size *= launch.cluster[0] ? std::max(launch.cluster[i], 1u) : own;
  }
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  const uint64_t blocks =
      threads > kMaxBlockThreads
          ? 0
          : uint64_t{sms_} * blocks_per_sm(code, settings, static_cast<uint32_t>(threads), launch.shared_bytes);
  const uint64_t most = settings.cluster_non_portable ? kMaxCluster : kPortableCluster;
  *clusters = size > most ? 0 : static_cast<uint32_t>(blocks / size);
  *largest = static_cast<uint32_t>(std::min(most, std::bit_floor(blocks)));
  return CUDA_SUCCESS;
}

CUresult SoftDevice::function_info(const Code& code, FunctionInfo* info) {
  if (const CUresult error = scheduler_.error()) return error;
  const CodeView found = view(code);
  if (!found.code) return CUDA_ERROR_INVALID_HANDLE;
  const KernelCode& kernel = *found.code;
  const KernelSettings& settings = found.image->settings(kernel.name);
  info->info = {};
  auto& attributes = info->info.attributes;
  attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] =
      static_cast<int32_t>(std::min(kernel.max_threads, kMaxBlockThreads));
  attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = static_cast<int32_t>(kernel.static_shared_bytes);
  uint64_t constants = 0;
  for (const Variable& variable : found.image->program().variables()) {
    if (variable.constant) constants += variable.bytes;
  }
  attributes[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES] = static_cast<int32_t>(constants);
  attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = static_cast<int32_t>(kernel.local_bytes - kernel.stack_bytes);
  attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = static_cast<int32_t>(fitted_registers(kernel));
  // What the PTX was written for, not what it runs on: libraries (CUB) choose among their own kernels by it.
  attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = static_cast<int32_t>(found.image->sm());
  attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
  attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = settings.max_dynamic_shared;
  attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = settings.carveout;
  attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = kernel.required_cluster[0] != 0;
  attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = settings.cluster[0];
  attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = settings.cluster[1];
  attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = settings.cluster[2];
  attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] = settings.cluster_non_portable;
  attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE] = settings.cluster_policy;
  info->info.parameters = static_cast<uint32_t>(kernel.parameters.size());
  info->info.parameter_bytes = kernel.parameter_bytes;
  info->parameters = kernel.parameters;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::function_set_attribute(const Code& code, CUfunction_attribute attribute, int32_t value) {
  if (const CUresult error = scheduler_.error()) return error;
  const CodeView found = view(code);
  if (!found.code) return CUDA_ERROR_INVALID_HANDLE;
  KernelSettings& settings = found.image->settings(found.code->name);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || static_cast<uint64_t>(value) + found.code->static_shared_bytes > kMaxBlockShared) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      settings.max_dynamic_shared = value;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      settings.carveout = value;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      settings.cluster_non_portable = value != 0;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) return CUDA_ERROR_INVALID_VALUE;
      settings.cluster_policy = value;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (found.code->required_cluster[0] != 0 || value < 0 || value > static_cast<int32_t>(kMaxCluster)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      settings.cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
