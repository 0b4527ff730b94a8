#include "backend/device/cuda/partition.h"

namespace bandsaw::cuda {

Result<std::unique_ptr<Partition>> Partition::make(DriverRef driver, CUdevice device, const DeviceConfig& config) {
  std::unique_ptr<Partition> made(new Partition(std::move(driver), device));
  if (Status status = made->choose(config); !status.ok()) return status;
  return made;
}

Status Partition::choose(const DeviceConfig& config) {
  CUdevResource all{}, rest{};
  unsigned count = 0;
  CUresult result = driver_->cuDeviceGetDevResource(device_, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = driver_->cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, config.sm_step);
  }
  std::vector<CUdevResource> groups(count);
  if (result == CUDA_SUCCESS && count > 0) {
    result = driver_->cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, config.sm_step);
  }
  if (result != CUDA_SUCCESS) {
    return Status::error(ENOTSUP, "no SMs of its own: the driver cannot split the GPU's into groups of {}: {}",
                         config.sm_step, driver_->describe(result));
  }
  groups.resize(count);
  const uint64_t end = config.sm_groups ? uint64_t{config.sm_first} + config.sm_groups : count;
  if (config.sm_first > count || end > count) {
    return Status::error(EINVAL, "no SMs of its own: groups {} to {} of {} SMs are asked for, the GPU has {}",
                         config.sm_first, end, config.sm_step, count);
  }
  parts_.assign(groups.begin() + config.sm_first, groups.begin() + static_cast<ptrdiff_t>(end));
  if (config.sm_groups == 0 && rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount > 0) parts_.push_back(rest);
  for (const CUdevResource& part : parts_) sms_ += part.sm.smCount;
  if (sms_ == 0) return Status::error(EINVAL, "no SMs of its own: none are left behind group {}", config.sm_first);
  return {};
}

CUresult Partition::make_context(const CudaContextRef& base, bool primary, CudaContextRef* made) {
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  // No call gives a description back.
  CUresult result = driver_->cuDevResourceGenerateDesc(&description, parts_.data(), parts_.size());
  if (result == CUDA_SUCCESS) {
    result = driver_->cuGreenCtxCreate(&green, description, device_, CU_GREEN_CTX_DEFAULT_STREAM);
  }
  if (result != CUDA_SUCCESS) return result;
  if ((result = driver_->cuCtxFromGreenCtx(&context, green)) != CUDA_SUCCESS) {
    driver_->cuGreenCtxDestroy(green);
    return result;
  }
  *made = std::make_shared<CudaContext>(context, primary, CudaContext::Green{green, base, driver_});
  ++contexts_;
  return CUDA_SUCCESS;
}

CUresult Partition::destroy(CudaContext& context) {
  if (make_current(*driver_, context) == CUDA_SUCCESS) context.order->clear();
  context.alive = false;
  forget_current();
  --contexts_;
  return driver_->cuGreenCtxDestroy(context.green);
}

}  // namespace bandsaw::cuda
