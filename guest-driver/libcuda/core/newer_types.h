// Types of functions that are newer than the cuda.h that this library is built with (CUDA 13.0).
#pragma once

#include <cuda.h>

#if CUDA_VERSION < 13010
struct CU_DEV_SM_RESOURCE_GROUP_PARAMS {
  unsigned int smCount;  // 0: as many as possible, which the call fills in
  unsigned int coscheduledSmCount;
  unsigned int preferredCoscheduledSmCount;
  unsigned int flags;
  unsigned int reserved[12];
};

enum CUdevWorkqueueConfigScope {
  CU_WORKQUEUE_SCOPE_DEVICE_CTX = 0,
  CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED = 1,
};

struct CUdevWorkqueueConfigResource {
  CUdevice device;
  unsigned int wqConcurrencyLimit;
  CUdevWorkqueueConfigScope sharingScope;
};
#endif
