// Activity records. Each kind has one layout, of which every version of CUPTI's headers from CUDA 12.1 to 13.5 declares
// a beginning: NVIDIA only ever adds at the end. So a program built with any of them reads what it knows.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace bandsaw::cupti {

// `Known` is what the oldest supported header declares; the rest, up to the newest's length, is 0.
template <typename Known, size_t kBytes>
struct Record {
  static_assert(sizeof(Known) <= kBytes && kBytes % 8 == 0);
  union {
    Known known;
    std::byte bytes[kBytes]{};
  };
};

using ApiRecord = Record<CUpti_ActivityAPI, 40>;
using KernelRecord = Record<CUpti_ActivityKernel9, 248>;
using CopyRecord = Record<CUpti_ActivityMemcpy5, 112>;
using FillRecord = Record<CUpti_ActivityMemset4, 104>;
using SynchronizationRecord = Record<CUpti_ActivitySynchronization, 56>;
using ExternalRecord = Record<CUpti_ActivityExternalCorrelation, 24>;
using OverheadRecord = Record<CUpti_ActivityOverhead, 56>;

constexpr size_t bytes_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(ApiRecord);
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(KernelRecord);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CopyRecord);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(FillRecord);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(SynchronizationRecord);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(ExternalRecord);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(OverheadRecord);
    default:
      return 0;  // a kind of which there are no records
  }
}

}  // namespace bandsaw::cupti
