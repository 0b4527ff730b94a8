// What compiled kernels and the software device's executor share: the memory layout of a running warp, and the
// functions that compiled code calls. Compiled code addresses these fields by offset (the compiler takes them
// with offsetof), so the structures are standard layout and change on both sides together.
//
// Execution model: a warp of 32 lanes runs in one native function with one vector element per lane; a lane
// mask says who is active. Each warp has a stack of its own (a fiber), because it gives the core away at
// barriers. All warps of a block run on one worker thread, so shared memory needs no locks; blocks run on all
// workers. Address 64-bit generic: global addresses are the runner's own addresses inside the window; shared
// and local memory are windows of their own (kSharedWindow, kLocalWindow) that generic accesses resolve.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/device/soft/sm_limits.h"

namespace bandsaw::soft {

inline constexpr int kWarpLanes = 32;

struct BlockState;
struct WarpRecording;
class TextureTable;

// Generic addresses of shared and local memory: outside the global window and never mapped by Linux programs'
// low addresses. A generic shared address is kSharedWindow + offset; a local one is kLocalWindow + offset in the
// executing lane's own local memory.
inline constexpr uint64_t kSharedWindow = 0x0000'0100'0000'0000ull;
inline constexpr uint64_t kLocalWindow = 0x0000'0200'0000'0000ull;
inline constexpr uint64_t kParameterWindow = 0x0000'0300'0000'0000ull;  // a kernel's parameters, read only
inline constexpr uint64_t kFunctionWindow = 0x0000'0400'0000'0000ull;   // function pointers: + 16 * number, no code
// An address in a block's shared memory is its offset. In another block of the cluster, or in this one by its rank, it
// is kClusterStep * (rank + 1) + offset.
inline constexpr uint32_t kClusterStep = 1 << 24;
inline constexpr uint32_t kMaxCluster = 16;
// Reserved shared memory (PTX, %reserved_smem_offset_begin) has the addresses behind all blocks of a cluster, always of
// the own block, so that code leaves it to find_bytes(). It lies behind the most that a block may have of its own.
inline constexpr uint32_t kReservedOffset = kClusterStep * (kMaxCluster + 1);
inline constexpr uint32_t kReservedPlace = kSmShared, kReservedBytes = kReservedShared;
inline constexpr uint64_t kSpaceWindowBytes = 0x0000'0100'0000'0000ull;
// Readable bytes that the executor allocates behind a block's shared memory: fast paths load whole vectors.
inline constexpr uint32_t kSharedPadding = 128;
// Shared memory is given out in units of this, as GPUs do: compilers load whole vectors at the end of an array.
inline constexpr uint32_t kSharedUnit = 128;

struct WarpState {
  // Set by the executor before the warp starts.
  uint32_t tid_x[kWarpLanes], tid_y[kWarpLanes], tid_z[kWarpLanes];
  uint32_t ntid[3], ctaid[3], nctaid[3];
  uint32_t warp_id, warps, sm_id, grid_id_low;
  uint64_t grid_id;
  uint32_t live;          // lanes that exist and have not exited; compiled code keeps it true
  uint32_t shared_bytes;  // what may be touched: static + dynamic, up to the next allocation unit
  uint32_t dynamic_shared_bytes;
  uint32_t local_bytes;                // of one lane
  uint32_t stack_bytes;                // the last of them: alloca's
  std::byte* shared;                   // the block's shared memory
  std::byte* local;                    // kWarpLanes * local_bytes, 64-byte aligned; words of the lanes interleaved
  const std::byte* parameters;         // packed kernel parameters
  uint64_t window_base;                // of global addresses; VGPU_WINDOW_BYTES long
  BlockState* block;                   // the executor's own
  const volatile uint32_t* cancelled;  // non-zero: the launch is being killed; tested at every loop's back edge
  uint32_t parameter_bytes;
  uint32_t cooperative;     // 1: a cooperative launch
  uint64_t grid_workspace;  // %envreg1 (high) and %envreg2 (low): 8 zeroed bytes of device memory, 0 if none
  uint32_t dynamic_shared_base;
  uint64_t stack_limit;          // lowest native stack address that recursion may reach; 0: unchecked
  const TextureTable* textures;  // the context's; null: it has none
  // Blocks in a cluster, by axis; 1 each where the launch has none. Others' shared memory by their rank in the cluster,
  // null without a cluster: all blocks of one run on one worker thread.
  uint32_t cluster[3];
  uint32_t explicit_cluster;
  std::byte* const* cluster_shared;
  uint32_t stack_top[kWarpLanes];  // how much of stack_bytes is taken
  WarpRecording* recording;        // what code that records has to fill; null: nothing is recorded
};

using KernelEntry = void (*)(WarpState*);

enum class Fault : uint32_t {
  kIllegalAddress = 700,  // values are the CUresults that programs see
  kMisaligned = 716,
  kTrap = 719,  // CUDA_ERROR_LAUNCH_FAILED
  kAssert = 710,
  kIllegalInstruction = 715,
  kStackOverflow = 719,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
};

enum class BarrierOp : uint32_t { kSync, kArrive, kAnd, kOr, kPopc };

// What a kernel asks of the device runtime (cuda_device_runtime_api.h), in the words of codegen/device_runtime.cc.
enum class DeviceCall : uint32_t {
  kParameterBuffer,
  kOldParameterBuffer,
  kLaunch,
  kOldLaunch,
  kStreamCreate,
  kStreamDestroy,
  kStreamWait,
  kEventCreate,
  kEventRecord,
  kEventDestroy,
  kLastError,
  kPeekError,
  kCopy,
  kCopyRows,
  kFill,
  kFillRows,
  kFillPlanes,
  kMalloc,
  kFree,
  kAttribute,
  kLimit,
  kDevice,
  kDeviceCount,
  kVersion,
  kFunctionAttributes,
  kOccupancy,
  kOccupancyFlags,
  kSetConditional,
};
inline constexpr uint32_t kDeviceCallWords = 16;  // of arguments, at most

// A call's value, and what it writes to memory of the program's: `bytes` of `data` to the generic address `to`.
struct DeviceAnswer {
  uint64_t value = 0, to = 0;
  uint32_t bytes = 0;
  alignas(8) std::byte data[56]{};
};

extern "C" {
// Ends the launch with a sticky error; does not return (it leaves the warp's fiber).
[[noreturn]] void bandsaw_fault(WarpState* warp, uint32_t fault, uint64_t address);
// Leaves the fiber when `cancelled` was seen.
[[noreturn]] void bandsaw_cancelled(WarpState* warp);
// bar / barrier: `lanes` arrive at barrier `id` of the block; threads 0 means all threads of the block.
// `predicate` holds one bit a lane. Returns the reduction over all threads (kAnd, kOr: 0 or 1; kPopc: count).
uint32_t bandsaw_barrier(WarpState* warp, uint32_t id, uint32_t threads, uint32_t lanes, uint32_t op,
                         uint32_t predicate);
// barrier.cluster: `lanes` arrive, or wait until all living threads of the cluster have arrived since.
void bandsaw_cluster_arrive(WarpState* warp, uint32_t lanes);
void bandsaw_cluster_wait(WarpState* warp);
// The warp has no live lane left; called once before the entry returns.
void bandsaw_exit(WarpState* warp);
// Gives other warps of the block and other blocks a turn: spinning on memory must not stop the world. Compiled code
// calls it at nanosleep and at the back edge of every loop that reads memory others may write (volatile, relaxed
// and acquire loads, atomics), and nowhere holding a lock of its own. It must be able to suspend the warp.
void bandsaw_yield(WarpState* warp);
// The warps of a warpgroup (four that follow one another, from a multiple of four on; fewer at the block's end) wait
// for each other. It suspends the warp.
void bandsaw_warpgroup(WarpState* warp);
// Generic or global address outside the window: registered host memory's alias for [address, +bytes), or a fault.
void* bandsaw_translate(WarpState* warp, uint64_t address, uint32_t bytes);
// vprintf of one lane: format and the `bytes` of packed arguments are private copies; strings among the arguments are
// the lane's generic addresses. Returns argument count.
int32_t bandsaw_vprintf(WarpState* warp, uint32_t lane, const char* format, const std::byte* arguments, uint32_t bytes);
// __assertfail of one lane, with private copies of its strings; does not return.
[[noreturn]] void bandsaw_assert(WarpState* warp, uint32_t lane, const char* message, const char* file, uint32_t line,
                                 const char* function);
// Device-side malloc and free (from the context's malloc heap limit); 0 when it is full.
uint64_t bandsaw_malloc(WarpState* warp, uint64_t bytes);
void bandsaw_free(WarpState* warp, uint64_t address);
// The device runtime, for one lane. `words`: kDeviceCallWords arguments.
void bandsaw_device_call(WarpState* warp, uint32_t lane, DeviceCall call, const uint64_t* words, DeviceAnswer* answer);
}

}  // namespace bandsaw::soft
