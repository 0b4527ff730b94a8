#include "guest-driver/libcuda/core/process.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/command_ring.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/visible_devices.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Leaked on purpose, like everything it points to: the runtime calls in after static destructors have run.
std::atomic<Process*> the_process{nullptr};
std::atomic<State> the_state{State::kUninitialised};
std::atomic<bool> forked{false};
pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;

void after_fork_in_child() {
  if (the_state.exchange(State::kUninitialised) == State::kUninitialised) return;
  forked = true;
  the_process.load()->transport->forget_in_child();
}

bool device_is_visible(const vgpu_device_info& device) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!list) return true;
  DeviceUuid uuid;
  std::copy(std::begin(device.uuid), std::end(device.uuid), uuid.begin());
  return !visible_devices(list, {&uuid, 1}).empty();
}

CUresult report(const TransportFailure& failure) {
  static bool said = false;  // under init_mutex
  if (!said) log(Level::kError, "%s", failure.message.c_str());
  said = true;
  return static_cast<CUresult>(failure.error);
}

CUresult connect() {
  TransportFailure failure;
  std::unique_ptr<Transport> transport = open_transport(&failure);
  if (!transport) return report(failure);
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  if (registered != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* created = new Process;
  created->transport = transport.release();
  created->memory = new SharedMemory(created->transport);
  created->rings = new CommandRingPool(created->transport, &created->next_seq);
  the_process = created;
  the_state = State::kReady;
  return CUDA_SUCCESS;
}

// A host of another release numbers its calls in its own way.
CUresult learn_calls(Process* created) {
  const vgpu_schema& host = created->transport->host();
  if (std::memcmp(&host, &wire::kSchema, sizeof(host)) == 0) return CUDA_SUCCESS;
  Call call;
  std::vector<std::byte> bytes;
  if (const CUresult result = wire::call_ids(call, &bytes); result != CUDA_SUCCESS) return result;
  std::vector<uint64_t> ids(bytes.size() / sizeof(uint64_t));
  std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(uint64_t));
  created->calls.learn(ids);
  log(Level::kInfo, "this library is of release %s, the host of %s, which lacks %u of its calls", wire::kRelease,
      wire::release_of(host).c_str(), created->calls.missing());
  return CUDA_SUCCESS;
}

CUresult ask_device(Process* created) {
  if (const CUresult result = learn_calls(created); result != CUDA_SUCCESS) return result;
  Call call;
  return wire::device_info(call, &created->device);
}

CUresult first_initialise() {
  if (!the_process.load()) {
    if (const CUresult result = connect(); result != CUDA_SUCCESS) return result;
  }
  Process& created = *the_process.load();
  the_state = State::kReady;
  if (const CUresult result = ask_device(&created); result != CUDA_SUCCESS) {
    if (state() != State::kLost) the_state = State::kUninitialised;
    return result;
  }
  created.device.name[sizeof(created.device.name) - 1] = 0;
  if (device_is_visible(created.device)) {
    begin_trace();
    return CUDA_SUCCESS;
  }
  the_state = State::kUninitialised;
  return CUDA_ERROR_NO_DEVICE;
}

}  // namespace

State state() { return the_state.load(std::memory_order_acquire); }

void set_lost() {
  State ready = State::kReady;
  if (the_state.compare_exchange_strong(ready, State::kLost)) {
    log(Level::kError, "the virtual GPU's host side is gone: no CUDA call of this process can succeed any more");
  }
}

Process& process() { return *the_process.load(std::memory_order_acquire); }

CUresult initialise() {
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (state() == State::kReady) return CUDA_SUCCESS;
  pthread_mutex_lock(&init_mutex);
  CUresult result = CUDA_SUCCESS;
  if (state() == State::kLost) result = health();
  if (state() == State::kUninitialised) result = first_initialise();
  pthread_mutex_unlock(&init_mutex);
  return result;
}

CUresult health() {
  switch (state()) {
    case State::kUninitialised:
      return CUDA_ERROR_NOT_INITIALIZED;
    case State::kLost:
    case State::kReady:
      break;
  }
  const auto sticky = static_cast<CUresult>(process().sticky.load(std::memory_order_relaxed));
  return sticky == CUDA_SUCCESS && state() == State::kLost ? kLostHost : sticky;
}

}  // namespace bandsaw::libcuda
