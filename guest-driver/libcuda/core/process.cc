#include "guest-driver/libcuda/core/process.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/command_ring.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/device_choice.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/managed_mode.h"
#include "guest-driver/libcuda/core/numa.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Leaked on purpose, like everything it points to: the runtime calls in after static destructors have run.
struct Process {
  GuestSpace space;
  std::vector<VirtualGpu*> opened;  // by their parts
  std::vector<VirtualGpu*> seen;    // by the program's ordinals
};

std::atomic<Process*> the_process{nullptr};
std::atomic<State> the_state{State::kUninitialised};
std::atomic<bool> forked{false};
pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;

Process& process() { return *the_process.load(std::memory_order_acquire); }

void after_fork_in_child() {
  if (the_state.exchange(State::kUninitialised) == State::kUninitialised) return;
  forked = true;
  for (const VirtualGpu* gpu : process().opened) gpu->transport->forget_in_child();
  if (process().space.arena >= 0) close(std::exchange(process().space.arena, -1));
}

CUresult report(const TransportFailure& failure) {
  static bool said = false;  // under init_mutex
  if (!said) log(Level::kError, "%s", failure.message.c_str());
  said = true;
  return static_cast<CUresult>(failure.error);
}

CUresult open_gpu(Process* process, const VirtualGpuPath& where) {
  TransportFailure failure;
  failure.error = CUDA_ERROR_NO_DEVICE;
  const auto part = static_cast<uint32_t>(process->opened.size());
  const auto open = where.direct ? open_direct : open_device;
  std::unique_ptr<Transport> transport = open(where.path, part, &process->space, &failure);
  if (!transport) return report(failure);
  auto* const gpu = new VirtualGpu;
  gpu->part = part;
  gpu->transport = transport.release();
  gpu->memory = new SharedMemory(gpu);
  gpu->rings = new CommandRingPool(gpu->transport, &gpu->next_seq);
  gpu->primary = new_context(gpu, true);
  process->opened.push_back(gpu);
  return CUDA_SUCCESS;
}

// A host of another release numbers its calls in its own way.
CUresult learn_calls(VirtualGpu* gpu) {
  const vgpu_schema& host = gpu->transport->host();
  if (std::memcmp(&host, &wire::kSchema, sizeof(host)) == 0) return CUDA_SUCCESS;
  Call call(*gpu);
  std::vector<std::byte> bytes;
  if (const CUresult result = wire::call_ids(call, &bytes); result != CUDA_SUCCESS) return result;
  std::vector<uint64_t> ids(bytes.size() / sizeof(uint64_t));
  std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(uint64_t));
  gpu->calls.learn(ids);
  log(Level::kInfo, "this library is of release %s, the host of %s, which lacks %u of its calls", wire::kRelease,
      wire::release_of(host).c_str(), gpu->calls.missing());
  return CUDA_SUCCESS;
}

CUresult ask_device(VirtualGpu* gpu) {
  if (const CUresult result = learn_calls(gpu); result != CUDA_SUCCESS) return result;
  Call call(*gpu);
  const CUresult result = wire::device_info(call, &gpu->info);
  gpu->info.name[sizeof(gpu->info.name) - 1] = 0;
  return result;
}

// A context, and so a runner, of a virtual GPU that the program does not see would only cost memory.
CUresult connect(Process* process) {
  std::vector<VirtualGpuPath> paths = find_virtual_gpus();
  if (paths.empty()) {
    return report(
        {CUDA_ERROR_NO_DEVICE,
         "there is no /dev/vgpu0: load the module virtio_vgpu, or set BANDSAW_VGPU to use virtual GPUs of this "
         "machine's vgpud directly"});
  }
  paths = wanted_before_asking(std::move(paths));
  if (paths.size() > kGpusMax) {
    log(Level::kWarn, "a process can use %u virtual GPUs; %zu are left out", kGpusMax, paths.size() - kGpusMax);
    paths.resize(kGpusMax);
  }
  for (size_t i = process->opened.size(); i < paths.size(); ++i) {
    if (const CUresult result = open_gpu(process, paths[i]); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult choose(Process* process) {
  std::vector<DeviceIdentity> devices;
  for (VirtualGpu* const gpu : process->opened) {
    if (const CUresult result = ask_device(gpu); result != CUDA_SUCCESS) return result;
    devices.push_back(identity_of(gpu->info));
  }
  for (const int index : wanted_after_asking(devices)) {
    VirtualGpu* const gpu = process->opened[static_cast<size_t>(index)];
    gpu->ordinal = gpu->primary->device = static_cast<CUdevice>(process->seen.size());
    process->seen.push_back(gpu);
  }
  for (VirtualGpu* const gpu : process->seen) {
    // Pools of host memory are libcuda's own, whatever the device has.
    gpu->info.attributes[CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED] = 1;
    gpu->info.attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED] = 1;
    // The device's node is one of its host's.
    int& node = gpu->info.attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID];
    if (!has_numa_node(node)) node = 0;
    if (process->seen.size() == 1 && managed_memory_moves(*gpu)) {
      gpu->info.attributes[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = 0;
    }
  }
  return process->seen.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

// glibc gives a program's freed blocks back to the kernel until it has freed a larger one; from then on they keep their
// pages. Programs that allocate host buffers in each step were written beside a driver that has freed large blocks by
// now: page faults would cost several times as much as their copies.
void keep_freed_pages() {
  constexpr size_t kLargestOfInterest = (32 << 20) - (64 << 10);  // mallopt(3): DEFAULT_MMAP_THRESHOLD_MAX, on 64 bits
  void* const volatile block = std::malloc(kLargestOfInterest);
  std::free(block);
}

CUresult first_initialise() {
  if (!the_process.load()) {
    static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
    if (registered != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    the_process = new Process;
  }
  Process& created = process();
  if (const CUresult result = connect(&created); result != CUDA_SUCCESS) return result;
  the_state = State::kReady;
  const CUresult result = choose(&created);
  if (result != CUDA_SUCCESS) {
    the_state = State::kUninitialised;
    return result;
  }
  begin_trace();
  keep_freed_pages();
  return CUDA_SUCCESS;
}

}  // namespace

void VirtualGpu::set_lost() {
  if (lost.exchange(true)) return;
  log(Level::kError,
      "device %d (virtual GPU %s): its host side is gone: no CUDA call of this process can use it any more", ordinal,
      info.vgpu);
}

int gpu_count() { return static_cast<int>(process().seen.size()); }
VirtualGpu& gpu_at(CUdevice ordinal) { return *process().seen[static_cast<size_t>(ordinal)]; }

VirtualGpu* gpu_of_part(uint32_t part) {
  const auto& opened = process().opened;
  return part < opened.size() ? opened[part] : nullptr;
}

VirtualGpu* gpu_of_address(uint64_t address) {
  const uint64_t offset = address - (process().space.window.base() + VGPU_WINDOW_DEVICE_OFFSET);
  return offset < VGPU_WINDOW_PARTS * VGPU_WINDOW_PART_BYTES
             ? gpu_of_part(static_cast<uint32_t>(offset / VGPU_WINDOW_PART_BYTES))
             : nullptr;
}

VirtualGpu& current_gpu() {
  const Context* const context = current_context();
  if (context) return *context->gpu;
  const Process& known = process();
  return *(known.seen.empty() ? known.opened : known.seen).front();
}

Window& guest_window() { return process().space.window; }

State state() { return the_state.load(std::memory_order_acquire); }

CUresult initialise() {
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (state() == State::kReady) return health();
  pthread_mutex_lock(&init_mutex);
  const CUresult result = state() == State::kReady ? health() : first_initialise();
  pthread_mutex_unlock(&init_mutex);
  return result;
}

CUresult health() { return state() == State::kUninitialised ? CUDA_ERROR_NOT_INITIALIZED : current_gpu().health(); }

}  // namespace bandsaw::libcuda
