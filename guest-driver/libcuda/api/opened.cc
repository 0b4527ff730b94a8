#include "guest-driver/libcuda/api/opened.h"

#include <map>
#include <mutex>

#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct AllOpened {
  std::mutex mutex;
  std::map<uint64_t, OpenedMemory> at;  // by the address that the program has
};

AllOpened& all_opened() {
  static AllOpened& all = *new AllOpened;
  return all;
}

}  // namespace

CUresult map_opened(Call& call, uint64_t memory, uint64_t bytes, OpenedMemory* opened, uint32_t access) {
  opened->bytes = bytes;
  CUresult result = wire::address_reserve(call, bytes, 0, &opened->base);
  if (result != CUDA_SUCCESS) return result;
  result = wire::memory_map(call, opened->base, bytes, 0, memory);
  if (result == CUDA_SUCCESS) {
    result = wire::memory_set_access(call, opened->base, bytes, access);
    if (result != CUDA_SUCCESS) wire::memory_unmap(call, opened->base, bytes);
  }
  if (result != CUDA_SUCCESS) wire::address_free(call, opened->base, bytes);
  return result;
}

CUresult import_opened(Call& call, const SharedMemoryToken& token, OpenedMemory* opened) {
  uint64_t memory = 0, bytes = 0;
  CUresult result = wire::memory_import(call, token.key, &memory, &bytes);
  if (result != CUDA_SUCCESS) return result;
  const bool in_it = token.length && token.length <= bytes && token.offset <= bytes - token.length;
  result = in_it ? map_opened(call, memory, bytes, opened) : CUDA_ERROR_INVALID_VALUE;
  const CUresult released = wire::memory_release(call, memory);  // the mapping holds it
  return result != CUDA_SUCCESS ? result : released;
}

CUresult unmap_opened(Call& call, const OpenedMemory& opened) {
  CUresult result = wire::settle(call);  // also beside captures
  const CUresult unmapped = wire::memory_unmap(call, opened.base, opened.bytes);
  if (result == CUDA_SUCCESS) result = unmapped;
  const CUresult freed = wire::address_free(call, opened.base, opened.bytes);
  return result == CUDA_SUCCESS ? freed : result;
}

void note_opened(const Range& range, const OpenedMemory& opened) {
  AddressMap::get().add(range);
  std::lock_guard lock(all_opened().mutex);
  all_opened().at[range.base] = opened;
}

bool free_opened(Call& call, const Range& range, CUresult* result) {
  OpenedMemory gone;
  {
    std::lock_guard lock(all_opened().mutex);
    const auto found = all_opened().at.find(range.base);
    if (found == all_opened().at.end()) return false;
    gone = found->second;
    all_opened().at.erase(found);
  }
  AddressMap::get().forget(range);
  *result = unmap_opened(call, gone);
  return true;
}

}  // namespace bandsaw::libcuda
