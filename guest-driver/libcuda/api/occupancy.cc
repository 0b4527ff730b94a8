// How many blocks fit: the device answers for one configuration, the searches over configurations happen here.
#include <algorithm>
#include <mutex>
#include <string>
#include <tuple>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/launch.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint32_t kPortableCluster = 8, kLargestCluster = 16;

// From this version of the driver on, NULL asks about clusters of a kernel that needs nothing but what the
// configuration says. cuBLAS 13.10 asks so.
constexpr int kAsksWithoutFunction = 13040;

CUresult check_function(CUfunction function, FunctionRecord** record) {
  Call call;
  if (!call.require_context()) return call.status();
  *record = find_function(function);
  return *record ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult blocks_per_sm(int* blocks, CUfunction function, int block, size_t shared, unsigned flags) {
  FunctionRecord* record = nullptr;
  CUresult result = check_function(function, &record);
  if (result != CUDA_SUCCESS) return result;
  if (!blocks || block <= 0 || (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint32_t count = 0;
  result = occupancy_of(record, static_cast<uint32_t>(block), shared, &count);
  if (result == CUDA_SUCCESS) *blocks = static_cast<int>(count);
  return result;
}

// The block size with the most threads per SM; among equals the largest, as CUDA's own search prefers.
CUresult best_block(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared, int limit,
                    unsigned flags) {
  FunctionRecord* record = nullptr;
  CUresult result = check_function(function, &record);
  if (result != CUDA_SUCCESS) return result;
  if (!grid || !block || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const int warp = device_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  int most = std::min(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                      record->attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  if (limit > 0) most = std::min(most, limit);
  const int per_sm = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  int best_threads = 0, best_blocks = 0;
  *block = 0;
  for (int size = (most + warp - 1) / warp * warp; size > 0 && best_threads < per_sm; size -= warp) {
    const int threads = std::min(size, most);
    int blocks = 0;
    result = blocks_per_sm(&blocks, function, threads, shared_of ? shared_of(threads) : shared, flags);
    if (result != CUDA_SUCCESS) return result;
    if (blocks * threads <= best_threads) continue;
    best_threads = blocks * threads;
    best_blocks = blocks;
    *block = threads;
  }
  *grid = best_blocks * device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return CUDA_SUCCESS;
}

uint32_t cluster_of(const CUlaunchConfig& config, const FunctionRecord& function) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& cluster = config.attrs[i].value.clusterDim;
    return cluster.x * cluster.y * cluster.z;
  }
  const auto required = [&](CUfunction_attribute attribute) { return std::max(function.attribute(attribute), 1); };
  return static_cast<uint32_t>(required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) *
                               required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT) *
                               required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH));
}

bool is_cluster_question(const int* answer, const CUlaunchConfig* config) {
  return answer && config && (!config->numAttrs || config->attrs);
}

CUresult check_cluster_question(const int* answer, const CUlaunchConfig* config, CUfunction function,
                                FunctionRecord** record) {
  const CUresult result = check_function(function, record);
  if (result != CUDA_SUCCESS) return result;
  return is_cluster_question(answer, config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Asks the device, which alone knows the groups of SMs that a cluster must fit into. The answers are kept, because
// libraries ask for every kernel that they might choose, before each of their calls.
CUresult ask_clusters(const CUlaunchConfig& config, FunctionRecord& function, uint32_t* clusters, uint32_t* largest) {
  Call call;
  vgpu_launch launch;
  CUresult result = read_config(config, function, &launch);
  if (result != CUDA_SUCCESS) return result;
  for (int i = 0; i < 3; ++i) {  // the question may come without a grid
    if (launch.grid[i] == 0) launch.grid[i] = std::max(launch.cluster[i], 1u);
  }
  const std::string question(reinterpret_cast<const char*>(&launch), sizeof launch);
  std::lock_guard lock(function.mutex);
  if (const auto known = function.cluster_answers.find(question); known != function.cluster_answers.end()) {
    std::tie(*clusters, *largest) = known->second;
    return CUDA_SUCCESS;
  }
  result = bandsaw::wire::occupancy_clusters(call, launch, clusters, largest);
  if (result == CUDA_SUCCESS) function.cluster_answers.emplace(question, std::pair(*clusters, *largest));
  return result;
}

// Libraries ask about clusters on every device of a compute capability that has them. On a device without them none
// fits.
bool has_clusters() { return device_attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0; }

CUresult clusters_of_any(int* clusters, const CUlaunchConfig* config) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!is_cluster_question(clusters, config)) return CUDA_ERROR_INVALID_VALUE;
  if (!has_clusters()) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  vgpu_launch launch;
  uint32_t count = 0, largest = 0;
  CUresult result = read_config(*config, {}, &launch);
  if (result == CUDA_SUCCESS && launch.cluster[0] == 0) result = CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (result == CUDA_SUCCESS) result = bandsaw::wire::occupancy_clusters(call, launch, &count, &largest);
  if (result == CUDA_SUCCESS) *clusters = static_cast<int>(count);
  return result;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block, size_t shared) {
  return blocks_per_sm(blocks, function, block, shared, 0);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int block,
                                                              size_t shared, unsigned flags) {
  return blocks_per_sm(blocks, function, block, shared, flags);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared_of,
                                          size_t shared, int limit) {
  return best_block(grid, block, function, shared_of, shared, limit, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                                   unsigned flags) {
  return best_block(grid, block, function, shared_of, shared, limit, flags);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function, int blocks, int block) {
  FunctionRecord* record = nullptr;
  const CUresult result = check_function(function, &record);
  if (result != CUDA_SUCCESS) return result;
  if (!bytes || blocks <= 0 || block <= 0) return CUDA_ERROR_INVALID_VALUE;
  int fitting = 0;
  const CUresult asked = blocks_per_sm(&fitting, function, block, 0, 0);
  if (asked != CUDA_SUCCESS) return asked;
  if (fitting < blocks) return CUDA_ERROR_INVALID_VALUE;
  // An equal part of the SM's memory less the static bytes; the driver does not count what it reserves per block.
  const int64_t per_sm = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  const int64_t constant = record->attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  constexpr int64_t kGranule = 128;
  const int64_t share = per_sm / blocks / kGranule * kGranule - constant;
  const int64_t limit = record->attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  *bytes = static_cast<size_t>(std::clamp<int64_t>(share, 0, std::max<int64_t>(limit, 0)));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function, const CUlaunchConfig* config) {
  FunctionRecord* record = nullptr;
  const CUresult result = check_cluster_question(size, config, function, &record);
  if (result != CUDA_SUCCESS) return result;
  if (!has_clusters()) {
    *size = 1;
    return CUDA_SUCCESS;
  }
  uint32_t clusters = 0, largest = 0;
  const CUresult asked = ask_clusters(*config, *record, &clusters, &largest);
  if (asked == CUDA_SUCCESS) *size = static_cast<int>(largest);
  return asked;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig* config) {
  if (!function && driver_version() >= kAsksWithoutFunction) return clusters_of_any(clusters, config);
  FunctionRecord* record = nullptr;
  const CUresult result = check_cluster_question(clusters, config, function, &record);
  if (result != CUDA_SUCCESS) return result;
  const uint32_t size = cluster_of(*config, *record);
  const bool portable = record->attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) == 0;
  // Of larger ones than it can launch, a device that has clusters says how many there is room for: cuBLAS learns from
  // that how many SMs belong together, and chooses its kernels by it.
  const uint32_t most = portable ? kPortableCluster : has_clusters() ? UINT32_MAX : kLargestCluster;
  if (!size || size > most) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const uint64_t threads = uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
  if (!threads || threads > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (has_clusters()) {
    uint32_t count = 0, largest = 0;
    const CUresult asked = ask_clusters(*config, *record, &count, &largest);
    if (asked == CUDA_SUCCESS) *clusters = static_cast<int>(count);
    return asked;
  }
  int blocks = 0;
  const CUresult asked = blocks_per_sm(&blocks, function, static_cast<int>(threads), config->sharedMemBytes, 0);
  if (asked != CUDA_SUCCESS) return asked;
  const int all = blocks * device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  *clusters = size == 1 ? all : 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
