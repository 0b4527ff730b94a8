#include "backend/device/soft/child_work.h"

#include <algorithm>
#include <cstring>

#include "backend/device/soft/sm_limits.h"
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

namespace {

constexpr size_t kErrorsMost = 65536;
constexpr uint64_t kLargestParameters = 32764;  // bytes
constexpr uint64_t kLargestAlignment = 256;
constexpr int32_t kRuntimeVersion = 13000;

template <typename T>
void put(uint64_t to, T value, DeviceAnswer* answer) {
  answer->to = to;
  answer->bytes = sizeof(value);
  std::memcpy(answer->data, &value, sizeof(value));
}

}  // namespace

ChildWork::ChildWork(SoftDevice& device, const LaunchPlan& parent)
    : device_(device), parent_(parent), share_(device.memory()->new_charge()) {}

ChildWork::~ChildWork() { device_.memory()->release_owner(this); }

void ChildWork::call(uint64_t block, uint32_t thread, DeviceCall call, const uint64_t* words, DeviceAnswer* answer) {
  std::lock_guard lock(mutex_);
  const uint64_t who = block * kMaxBlockThreads + thread;
  if (call == DeviceCall::kLastError || call == DeviceCall::kPeekError) {
    const auto last = errors_.find(who);
    answer->value = last == errors_.end() ? kOk : last->second;
    if (call == DeviceCall::kLastError) errors_.erase(who);
    return;
  }
  const Error error = this->answer(block, thread, call, words, answer);
  if (error && (errors_.size() < kErrorsMost || errors_.contains(who))) errors_[who] = error;
  if (call != DeviceCall::kParameterBuffer && call != DeviceCall::kOldParameterBuffer) answer->value = error;
}

ChildWork::Error ChildWork::answer(uint64_t block, uint32_t thread, DeviceCall call, const uint64_t* words,
                                   DeviceAnswer* answer) {
  const auto shape_at = [&](uint32_t first) {
    Shape shape{};
    for (uint32_t i = 0; i < 3; ++i) shape.grid[i] = static_cast<uint32_t>(words[first + i]);
    for (uint32_t i = 0; i < 3; ++i) shape.block[i] = static_cast<uint32_t>(words[first + 3 + i]);
    shape.shared_bytes = static_cast<uint32_t>(words[first + 6]);
    return shape;
  };
  switch (call) {
    case DeviceCall::kParameterBuffer: {
      FunctionRef function = function_at(words[0]);
      if (!function) return kInvalidFunction;
      const uint64_t bytes = static_cast<SoftFunction&>(*function).code->parameter_bytes;
      answer->value = take_place(bytes);
      if (!answer->value) return kNoMemory;
      Buffer& buffer = buffers_[answer->value];
      buffer.function = std::move(function);
      buffer.shape = shape_at(1);
      return kOk;
    }
    case DeviceCall::kOldParameterBuffer:
      if (words[0] > kLargestAlignment || words[1] > kLargestParameters) return kInvalidValue;
      answer->value = take_place(words[1]);
      return answer->value ? kOk : kNoMemory;
    case DeviceCall::kLaunch:
      return launch(block, words[1], words[0], nullptr, nullptr);
    case DeviceCall::kOldLaunch: {
      const FunctionRef function = function_at(words[0]);
      const Shape shape = shape_at(2);
      return function ? launch(block, words[9], words[1], function, &shape) : kInvalidFunction;
    }
    case DeviceCall::kStreamCreate:
    case DeviceCall::kEventCreate:
      return make_handle(call == DeviceCall::kStreamCreate, words, answer);
    case DeviceCall::kStreamDestroy:
      return streams_.erase(words[0]) ? kOk : kInvalidHandle;
    case DeviceCall::kEventDestroy:
      return events_.erase(words[0]) ? kOk : kInvalidHandle;
    case DeviceCall::kStreamWait:
    case DeviceCall::kEventRecord:
      return order(block, call, words);
    case DeviceCall::kCopy:
    case DeviceCall::kCopyRows:
      return copy(block, call, words);
    case DeviceCall::kFill:
    case DeviceCall::kFillRows:
    case DeviceCall::kFillPlanes:
      return fill(block, call, words);
    default:
      return question(call, words, answer);
  }
}

ChildWork::Error ChildWork::question(DeviceCall call, const uint64_t* words, DeviceAnswer* answer) {
  switch (call) {
    case DeviceCall::kMalloc: {
      const uint64_t address = parent_.services->heap_alloc(words[1]);
      if (!address) return kNoMemory;
      put(words[0], address, answer);
      return kOk;
    }
    case DeviceCall::kFree:
      if (words[0]) parent_.services->heap_free(words[0]);
      return kOk;
    case DeviceCall::kAttribute: {
      const uint64_t which = words[1];
      if (words[2] != 0 || which == 0 || which >= CU_DEVICE_ATTRIBUTE_MAX) return kInvalidValue;
      vgpu_device_info info;
      device_.info(&info);
      put(words[0], int32_t{info.attributes[which]}, answer);
      return kOk;
    }
    case DeviceCall::kLimit: {
      uint64_t value = 0;
      const ContextRef context = parent_.context.lock();
      if (!context || device_.context_get_limit(context, static_cast<CUlimit>(words[1]), &value)) return kInvalidValue;
      put(words[0], value, answer);
      return kOk;
    }
    case DeviceCall::kDevice:
      put(words[0], int32_t{0}, answer);
      return kOk;
    case DeviceCall::kDeviceCount:
      put(words[0], int32_t{1}, answer);
      return kOk;
    case DeviceCall::kVersion:
      put(words[0], kRuntimeVersion, answer);
      return kOk;
    case DeviceCall::kFunctionAttributes:
      answer->to = words[0];
      return function_attributes(words[1], answer);
    case DeviceCall::kOccupancy:
    case DeviceCall::kOccupancyFlags:
      return occupancy(words, answer);
    default:
      return kInvalidValue;
  }
}

ChildWork::Error ChildWork::function_attributes(uint64_t address, DeviceAnswer* answer) {
  const FunctionRef function = function_at(address);
  FunctionInfo found;
  if (!function || device_.function_info({nullptr, function}, &found)) return kInvalidFunction;
  const auto& attributes = found.info.attributes;
  // The beginning of cudaFuncAttributes.
  struct {
    uint64_t shared, constant, local;
    int32_t threads, registers, ptx, binary, cache_mode, dynamic_shared, carveout;
  } made{};
  made.shared = static_cast<uint64_t>(attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES]);
  made.constant = static_cast<uint64_t>(attributes[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES]);
  made.local = static_cast<uint64_t>(attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES]);
  made.threads = attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  made.registers = attributes[CU_FUNC_ATTRIBUTE_NUM_REGS];
  made.ptx = attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION];
  made.binary = attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION];
  made.dynamic_shared = attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  made.carveout = attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
  answer->bytes = offsetof(decltype(made), carveout) + sizeof(made.carveout);
  static_assert(sizeof(made) <= sizeof(answer->data));
  std::memcpy(answer->data, &made, answer->bytes);
  return kOk;
}

ChildWork::Error ChildWork::occupancy(const uint64_t* words, DeviceAnswer* answer) {
  const FunctionRef function = function_at(words[1]);
  uint32_t blocks = 0;
  if (!function) return kInvalidFunction;
  if (device_.occupancy({nullptr, function}, static_cast<uint32_t>(words[2]), words[3], &blocks)) return kInvalidValue;
  put(words[0], static_cast<int32_t>(blocks), answer);
  return kOk;
}

}  // namespace bandsaw::soft
