// Launches, and what programs ask about functions.
#include "backend/device/cuda/cuda_device.h"
#include "backend/device/cuda/launch_config.h"

namespace bandsaw::cuda {

CUresult CudaDevice::launch(const StreamRef& stream, const Launch& launch) {
  if (const CUresult result = enter(stream)) return result;
  measure(kCompute, stream, 0);
  if (launch.cooperative) keep_no_more();
  const LaunchConfig config(launch, as(stream).handle);
  size_t bytes = launch.parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(launch.parameters.data()),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  const CUresult result =
      check(driver_->cuLaunchKernelEx(config.get(), code_handle(launch.code), nullptr, bytes ? extra : nullptr));
  work_goes_on(stream);
  return result;
}

CUresult CudaDevice::function_info(const Code& code, FunctionInfo* info) {
  if (const CUresult result = enter(code)) return result;
  for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; ++i) {
    const auto attribute = static_cast<CUfunction_attribute>(i);
    int value = 0;
    const CUresult result = code.kernel
                                ? driver_->cuKernelGetAttribute(&value, attribute, as(code.kernel).handle, device_)
                                : driver_->cuFuncGetAttribute(&value, attribute, as(code.function).handle);
    if (result == CUDA_SUCCESS) info->info.attributes[i] = value;
    if (result != CUDA_SUCCESS && i == 0) return check(result);  // the first asks whether it can be loaded at all
  }
  const auto local = static_cast<uint64_t>(std::max(info->info.attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES], 0));
  if (const CUresult result = take_local(local)) return result;
  info->parameters = code_parameters(code);
  uint32_t end = 0;
  for (const vgpu_parameter& parameter : info->parameters) end = std::max(end, parameter.offset + parameter.bytes);
  info->info.parameters = static_cast<uint32_t>(info->parameters.size());
  info->info.parameter_bytes = end;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::function_set_attribute(const Code& code, CUfunction_attribute attribute, int32_t value) {
  if (const CUresult result = enter(code)) return result;
  return check(code.kernel ? driver_->cuKernelSetAttribute(attribute, value, as(code.kernel).handle, device_)
                           : driver_->cuFuncSetAttribute(as(code.function).handle, attribute, value));
}

CUresult CudaDevice::occupancy(const Code& code, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) {
  if (const CUresult result = enter(code)) return result;
  int count = 0;
  const CUresult result = driver_->cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &count, code_handle(code), static_cast<int>(block_threads), shared_bytes);
  *blocks = static_cast<uint32_t>(count);
  return check(result);
}

CUresult CudaDevice::occupancy_clusters(const ContextRef& context, const Launch& launch, uint32_t* clusters,
                                        uint32_t* largest) {
  if (const CUresult result = enter(as(context))) return result;
  const LaunchConfig config(launch, nullptr);
  int count = 0, size = 0;
  const bool any = !launch.code.kernel && !launch.code.function;
  const CUfunction function = any ? nullptr : code_handle(launch.code);
  CUresult result = driver_->cuOccupancyMaxPotentialClusterSize(&size, function, config.get());
  // Without a size in the configuration it is the kernel's own, if it has one.
  const CUresult active = driver_->cuOccupancyMaxActiveClusters(&count, function, config.get());
  if (launch.cluster[0] != 0) result = active;
  *clusters = static_cast<uint32_t>(count);
  *largest = static_cast<uint32_t>(size);
  return check(result);
}

}  // namespace bandsaw::cuda
