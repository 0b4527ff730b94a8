// cuLink*: inputs go to the host as they come; what was linked comes back as an image that programs load.
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "guest-driver/libcuda/api/image.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/careful_read.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"

// cuda.h names it; what is in it is ours.
struct CUlinkState_st {
  uint64_t handle = 0;
  uint64_t context = 0;
  std::mutex mutex;
  bandsaw::libcuda::JitOptions jit;
  float milliseconds = 0;
  std::vector<std::byte> image;  // once it is complete
};

namespace bandsaw::libcuda {
namespace {

struct LinkStates {
  std::mutex mutex;
  std::set<CUlinkState> alive;

  bool contains(CUlinkState state) {
    std::lock_guard lock(mutex);
    return alive.contains(state);
  }
};

LinkStates& link_states() {
  static LinkStates& all = *new LinkStates;
  return all;
}

// Options as the wire has them: pairs of numbers. The host knows which of them are numbers.
std::vector<std::byte> option_pairs(unsigned count, const CUjit_option* options, void** values) {
  std::vector<std::byte> bytes;
  for (unsigned i = 0; i < count && i < 64; ++i) {
    const uint32_t pair[2] = {static_cast<uint32_t>(options[i]),
                              static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values[i]))};
    const auto* const first = reinterpret_cast<const std::byte*>(pair);
    bytes.insert(bytes.end(), first, first + sizeof(pair));
  }
  return bytes;
}

CUresult create_link(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUlinkState_st>();
  CUresult result = made->jit.read(count, options, values);
  if (result != CUDA_SUCCESS) return result;
  const std::vector<std::byte> pairs = option_pairs(count, options, values);
  result = wire::link_create(call, {pairs.data(), pairs.size()}, &made->handle);
  if (result != CUDA_SUCCESS) return result;
  made->context = call.context();
  *state = made.get();
  std::lock_guard lock(link_states().mutex);
  link_states().alive.insert(made.release());
  return CUDA_SUCCESS;
}

// Runs a wire call of a link state, and hands its log and time to the program.
template <typename Step>
CUresult link_step(CUlinkState state, Step step) {
  Call call;
  if (call.failed()) return call.status();
  if (!state || !link_states().contains(state)) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(state->mutex);
  call.set_context(state->context);
  const auto before = std::chrono::steady_clock::now();
  std::string log;
  const CUresult result = step(call, &log);
  const std::chrono::duration<float, std::milli> took = std::chrono::steady_clock::now() - before;
  state->milliseconds += took.count();
  state->jit.report(result, log, state->milliseconds);
  return result;
}

CUresult add_data(CUlinkState state, CUjitInputType type, const void* data, size_t bytes, const char* name,
                  unsigned count, const CUjit_option* options, void** values) {
  if (!data || !bytes || (count && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
  if (type < 0 || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  return link_step(state, [&](Call& call, std::string* log) {
    SharedImage shared;
    const CUresult result = shared.fill(call, {data, bytes});
    if (result != CUDA_SUCCESS) return result;
    return wire::link_add(call, state->handle, type, shared.address(), bytes, name ? name : "<input>", log);
  });
}

CUresult add_file(CUlinkState state, CUjitInputType type, const char* path, unsigned count, const CUjit_option* options,
                  void** values) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> bytes;
  const CUresult result = read_file(path, &bytes);
  if (result != CUDA_SUCCESS) return result;
  const size_t ends = type == CU_JIT_INPUT_PTX ? 7 : 8;  // of the NULs behind it text keeps one
  return add_data(state, type, bytes.data(), bytes.size() - ends, path, count, options, values);
}

CUresult complete(CUlinkState state, void** image, size_t* bytes) {
  return link_step(state, [&](Call& call, std::string* log) {
    uint64_t size = 0;
    CUresult result = wire::link_complete(call, state->handle, &size, log);
    if (result != CUDA_SUCCESS) return result;
    SharedBlock block;
    result = call.gpu().memory->allocate(size, 0, &block);
    if (result != CUDA_SUCCESS) return result;
    result = wire::link_image(call, state->handle, reinterpret_cast<uint64_t>(block.address), size);
    if (result == CUDA_SUCCESS) {
      const auto* const first = static_cast<const std::byte*>(block.address);
      state->image.assign(first, first + size);
    }
    // Fails only when the host is gone.
    static_cast<void>(block.memory->release(block.address));
    *image = state->image.data();
    if (bytes) *bytes = state->image.size();
    return result;
  });
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  return create_link(count, options, values, state);
}

CUresult cuLinkCreate(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  return create_link(count, options, values, state);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t bytes, const char* name,
                          unsigned count, CUjit_option* options, void** values) {
  return add_data(state, type, data, bytes, name, count, options, values);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t bytes, const char* name,
                       unsigned count, CUjit_option* options, void** values) {
  return add_data(state, type, data, bytes, name, count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                          CUjit_option* options, void** values) {
  return add_file(state, type, path, count, options, values);
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned count, CUjit_option* options,
                       void** values) {
  return add_file(state, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  return image ? complete(state, image, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLinkDestroy(CUlinkState state) {
  Call call;
  if (!state || !link_states().contains(state)) return CUDA_ERROR_INVALID_HANDLE;
  {
    std::lock_guard lock(link_states().mutex);
    if (link_states().alive.erase(state) == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::unique_ptr<CUlinkState_st> gone(state);
  if (call.failed()) return call.status();
  call.set_context(gone->context);
  return wire::link_destroy(call, gone->handle);
}

}  // extern "C"
