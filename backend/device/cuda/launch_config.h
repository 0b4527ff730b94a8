// A launch's shape, attributes and hints as the driver takes them.
#pragma once

#include "backend/device/cuda/driver.h"
#include "backend/device/device.h"

namespace bandsaw::cuda {

// Lives as long as the call that takes it.
class LaunchConfig {
 public:
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig(const Launch& launch, CUstream stream) {
    config_.gridDimX = launch.grid[0];
    config_.gridDimY = launch.grid[1];
    config_.gridDimZ = launch.grid[2];
    config_.blockDimX = launch.block[0];
    config_.blockDimY = launch.block[1];
    config_.blockDimZ = launch.block[2];
    config_.sharedMemBytes = launch.shared_bytes;
    config_.hStream = stream;
    config_.attrs = attributes_;
    if (launch.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
    if (launch.priority != 0) add(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = launch.priority;
    if (launch.programmatic) {
      add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).programmaticStreamSerializationAllowed = 1;
    }
    if (launch.sync_domain != 0) {
      add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain = static_cast<CUlaunchMemSyncDomain>(launch.sync_domain);
    }
    if (launch.carveout) {
      add(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).sharedMemCarveout =
          static_cast<unsigned>(*launch.carveout);
    }
    if (launch.cluster[0] != 0) add_cluster(launch);
  }
  const CUlaunchConfig* get() const { return &config_; }

 private:
  CUlaunchAttributeValue& add(CUlaunchAttributeID id) {
    CUlaunchAttribute& attribute = attributes_[config_.numAttrs++];
    attribute.id = id;
    return attribute.value;
  }
  void add_cluster(const Launch& launch) {
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
    if (launch.cluster_policy != 0) {
      add(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE).clusterSchedulingPolicyPreference =
          static_cast<CUclusterSchedulingPolicy>(launch.cluster_policy);
    }
    const uint32_t* const preferred = launch.preferred_cluster;
    if (preferred[0] != 0) {
      add(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION).preferredClusterDim = {preferred[0], preferred[1],
                                                                                  preferred[2]};
    }
  }

  CUlaunchConfig config_{};
  CUlaunchAttribute attributes_[8];
};

}  // namespace bandsaw::cuda
