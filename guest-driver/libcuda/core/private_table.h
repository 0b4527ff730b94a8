// A private table: functions behind cuGetExportTable that libraries call by their place. Slots that have no function
// here say so when they are called, and refuse.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace bandsaw::libcuda {

struct TableName {
  std::array<uint8_t, 16> uuid;  // as CUuuid has its bytes
  const char* title;
};

// Remembers that the library with the code at `caller` holds a CUDA runtime of this version (13050 is 13.5).
void note_runtime(const void* caller, uint32_t version);

// Says, once for each slot and calling library, that nothing is there. Thread-safe. Returns CUDA_ERROR_NOT_SUPPORTED.
CUresult refuse_slot(const TableName& table, size_t slot, const void* caller);
// The same of a table that is not there. Returns CUDA_ERROR_NOT_FOUND.
CUresult refuse_table(const uint8_t* uuid, const void* caller);

template <typename Function>
const void* slot_address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

template <const TableName& kName, size_t kSlot>
CUresult unknown_slot() {
  return refuse_slot(kName, kSlot, __builtin_return_address(0));
}

// Slots of 8 bytes. Slot 0 is the size of the table in bytes.
template <size_t kSlots>
struct PrivateTable {
  const void* slots[kSlots];
};

template <const TableName& kName, size_t kSlots>
PrivateTable<kSlots> refusing_table() {
  return []<size_t... kSlot>(std::index_sequence<kSlot...>) {
    PrivateTable<kSlots> table{{slot_address(unknown_slot<kName, kSlot>)...}};
    table.slots[0] = reinterpret_cast<const void*>(sizeof(table));
    return table;
  }(std::make_index_sequence<kSlots>());
}

}  // namespace bandsaw::libcuda
