#include "backend/device/cuda/turn_kernel.h"

#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

constexpr char kCode[] = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry turn() { ret; }
)";

}  // namespace

TurnKernel::~TurnKernel() {
  if (loader_.joinable()) loader_.join();
  if (library_) driver_->cuLibraryUnload(library_);
}

void TurnKernel::load() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // other threads may capture meanwhile
  driver_->cuThreadExchangeStreamCaptureMode(&mode);
  CUresult result = driver_->cuLibraryLoadData(&library_, kCode, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) result = driver_->cuLibraryGetKernel(&kernel_, library_, "turn");
  if (result != CUDA_SUCCESS)
    return log::warn("steps beside others are measured from too early: {}", driver_->describe(result));
  ready_ = true;
}

CUresult TurnKernel::put(CUstream stream) {
  if (!ready_) {
    std::lock_guard lock(mutex_);
    if (!loader_.joinable()) loader_ = std::thread([this] { load(); });
    return CUDA_SUCCESS;
  }
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  return driver_->cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel_), nullptr, nullptr);
}

}  // namespace bandsaw::cuda
