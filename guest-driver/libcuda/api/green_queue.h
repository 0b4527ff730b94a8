// Queues between the streams of a context and its device, as green contexts are asked for with them (CUDA 13.1): how
// much work they will have at once, and whether other green contexts' work should keep out of theirs. Which queue work
// goes through is the host's to choose, for all that a virtual GPU does; so what a program says is checked, kept and
// told again.
#pragma once

#include <cuda.h>

#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/newer_types.h"

namespace bandsaw::libcuda {

// Resource types that are newer than the cuda.h that this library is built with: how queues are to be, and those that a
// context has.
inline constexpr auto kQueueConfig = static_cast<CUdevResourceType>(1000);
inline constexpr auto kQueues = static_cast<CUdevResourceType>(10000);

inline bool is_queue_type(CUdevResourceType type) { return type == kQueueConfig || type == kQueues; }

// `type`: one of the two.
CUdevResource queue_resource(CUdevResourceType type, CUdevice device, const QueueConfig& config);
// Of a resource of one of the two types. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: no queues are like that;
// CUDA_ERROR_INVALID_RESOURCE_TYPE: queues that no context has told.
CUresult read_queues(const CUdevResource& resource, CUdevice* device, QueueConfig* config);

}  // namespace bandsaw::libcuda
