#include "backend/runner/saved/mappings_again.h"

#include <cerrno>
#include <map>

#include "backend/device/given.h"

namespace bandsaw::runner {
namespace {

using wire::HandleKind;

constexpr const char* kShared = "memory that other processes may have";

// The place of each memory in the list.
class Places {
 public:
  Places(GivesAgain* device, MappingStates* states) : device_(*device), states_(*states) {}
  // False: others may have it.
  bool place_of(const MemoryRef& memory, uint32_t* place) {
    const auto [known, first] = places_.try_emplace(memory.get(), static_cast<uint32_t>(states_.memory.size()));
    *place = known->second;
    if (!first) return true;
    MemoryState& state = states_.memory.emplace_back();
    state.key = device_.memory_key(memory, &state.bytes);
    return state.key != 0;
  }

 private:
  GivesAgain& device_;
  MappingStates& states_;
  std::map<const Memory*, uint32_t> places_;
};

CUresult make_memory(GivesAgain& device, HandleTable& table, const MemoryState& state, MemoryRef* memory) {
  if (const CUresult result = device.memory_make(state.key, state.bytes, memory)) return result;
  for (const uint64_t handle : state.handles) {
    Given given({handle}, nullptr);
    const Given::Scope scope(&given);
    if (table.add(HandleKind::kMemory, *memory, 0) != handle) return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

CUresult make_reservation(Device& device, const ReservationState& state, const std::vector<MemoryRef>& memory) {
  if (const CUresult result = device.gives_again()->reserve_again(state.address, state.bytes)) return result;
  for (const MappingState& one : state.mappings) {
    if (one.memory >= memory.size()) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = device.memory_map(one.address, one.bytes, one.offset, memory[one.memory]);
    if (result == CUDA_SUCCESS) result = device.memory_set_access(one.address, one.bytes, one.access);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

std::string describe_mappings(GivesAgain& device, Objects& objects, MappingStates* states,
                              std::set<uint64_t>* handles) {
  Places places(&device, states);
  uint32_t place = 0;
  for (const uint64_t handle : objects.table().all()) {
    if (wire::kind_of(handle) != HandleKind::kMemory) continue;
    const auto memory = std::static_pointer_cast<Memory>(objects.find(HandleKind::kMemory, handle));
    if (!memory || !places.place_of(memory, &place)) return kShared;
    states->memory[place].handles.push_back(handle);
    handles->insert(handle);
  }
  std::vector<ReservedAgain> all;
  if (std::string lacks = device.reserved(&all); !lacks.empty()) return lacks;
  for (const ReservedAgain& one : all) {
    ReservationState& state = states->reservations.emplace_back();
    state.address = one.address;
    state.bytes = one.bytes;
    for (const MappedAgain& mapped : one.mappings) {
      if (!places.place_of(mapped.memory, &place)) return kShared;
      state.mappings.push_back({mapped.address, mapped.bytes, mapped.offset, place, mapped.access});
    }
  }
  return {};
}

Status make_mappings(Device& device, Objects& objects, const MappingStates& states) {
  CUresult result = CUDA_SUCCESS;
  std::vector<MemoryRef> memory;
  for (const MemoryState& state : states.memory) {
    if (result == CUDA_SUCCESS) {
      result = make_memory(*device.gives_again(), objects.table(), state, &memory.emplace_back());
    }
  }
  for (const ReservationState& state : states.reservations) {
    if (result == CUDA_SUCCESS) result = make_reservation(device, state, memory);
  }
  if (result == CUDA_SUCCESS) return {};
  return Status::error(result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EPROTO, "mapped memory again: error {}",
                       static_cast<int>(result));
}

}  // namespace bandsaw::runner
