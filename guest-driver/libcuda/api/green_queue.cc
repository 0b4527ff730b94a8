#include "guest-driver/libcuda/api/green_queue.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "guest-driver/libcuda/core/device.h"

namespace bandsaw::libcuda {
namespace {

constexpr unsigned kConnections = 8, kConnectionsMost = 32;

// What a context's queues carry where cuda.h has padding, as its SMs do.
struct CarriedQueues {
  uint64_t magic;
  CUdevice device;
  QueueConfig config;
};
constexpr uint64_t kCarriedQueues = 0x42616e6473617751;  // "BandsawQ"
static_assert(sizeof(CarriedQueues) <= sizeof(CUdevResource::_internal_padding));

// Of a context that nobody has said anything of.
unsigned usual_limit() {
  const char* const text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const unsigned long wanted = text ? std::strtoul(text, nullptr, 10) : 0;
  return wanted >= 1 && wanted <= kConnectionsMost ? static_cast<unsigned>(wanted) : kConnections;
}

}  // namespace

CUdevResource queue_resource(CUdevResourceType type, CUdevice device, const QueueConfig& config) {
  CUdevResource resource{};
  resource.type = type;
  if (type == kQueues) {
    const CarriedQueues carried{kCarriedQueues, device, config};
    std::memcpy(resource._internal_padding, &carried, sizeof(carried));
    return resource;
  }
  CUdevWorkqueueConfigResource told{};
  told.device = device;
  told.wqConcurrencyLimit = config.limit ? config.limit : usual_limit();
  told.sharingScope = static_cast<CUdevWorkqueueConfigScope>(config.scope);
  std::memcpy(resource._oversize, &told, sizeof(told));
  return resource;
}

CUresult read_queues(const CUdevResource& resource, CUdevice* device, QueueConfig* config) {
  if (resource.type == kQueues) {
    CarriedQueues carried;
    std::memcpy(&carried, resource._internal_padding, sizeof(carried));
    *device = carried.device;
    *config = carried.config;
    return carried.magic == kCarriedQueues ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
  }
  CUdevWorkqueueConfigResource wanted;
  std::memcpy(&wanted, resource._oversize, sizeof(wanted));
  *device = wanted.device;
  *config = {wanted.wqConcurrencyLimit, static_cast<unsigned>(wanted.sharingScope)};
  const bool known = config->limit && config->scope <= 1 && check_device(*device) == CUDA_SUCCESS;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

}  // namespace bandsaw::libcuda
