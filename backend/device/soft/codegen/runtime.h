// Functions that compiled code calls beside those of warp.h: slow paths, rare instructions, atomics. They work on
// arrays of 32 lanes; only lanes of `mask` are read or written in memory.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/device/soft/codegen/piece_table.h"
#include "backend/device/soft/guest_pointer.h"
#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

// Where [address, +bytes) of one lane is (guest_pointer.h). Faults (does not return) when it may not be touched or is
// misaligned: `bytes` is a power of two.
Resolved resolve(WarpState* warp, uint32_t lane, uint64_t address, uint32_t bytes, AccessSpace space, bool write);
// Copies between a lane's memory and a buffer, whatever the space.
void read_bytes(WarpState* warp, uint32_t lane, uint64_t address, void* to, uint32_t bytes, AccessSpace space);
void write_bytes(WarpState* warp, uint32_t lane, uint64_t address, const void* from, uint32_t bytes, AccessSpace space);

// f(lane) for each lane of the mask, in order.
template <class F>
void for_lanes(uint32_t mask, F&& f) {
  for (; mask; mask &= mask - 1) f(static_cast<uint32_t>(__builtin_ctz(mask)));
}

// The barrier hears that bytes have come: an address in shared memory.
void complete_bytes(WarpState* warp, uint32_t lane, uint64_t barrier, uint64_t bytes);
// Atomically combines `count` elements at consecutive addresses with those of `data`; numbers of AtomicOp and
// AtomicType.
void reduce_elements(WarpState* warp, uint64_t address, const std::byte* data, uint32_t count, AccessSpace space,
                     uint32_t op, uint32_t type);

// Code that is compiled when it is first needed: the functions of a large module that pointers name, and the pieces of
// long kernels. A module's code knows its own as the symbol m.functions.
class FunctionFinder {
 public:
  // The code of the function with this address, if it has this signature (emitter.h); compiled now if nobody has called
  // it yet. nullptr: there is none, or it cannot be compiled. Thread-safe.
  virtual void* find(uint64_t address, uint64_t signature) = 0;
  // Of the kernel with this address, which has so many. Thread-safe; as long as the code.
  virtual PieceTable& pieces(uint64_t kernel, uint32_t count) = 0;

 protected:
  ~FunctionFinder() = default;
};

using SymbolTable = std::vector<std::pair<const char*, void*>>;
// Every symbol that compiled code may name.
SymbolTable runtime_symbols();
// Parts of it, by file.
void add_memory_symbols(SymbolTable* table);
void add_atomic_symbols(SymbolTable* table);
void add_integer_symbols(SymbolTable* table);
void add_float_symbols(SymbolTable* table);
void add_half_symbols(SymbolTable* table);
void add_rounding_symbols(SymbolTable* table);
void add_call_symbols(SymbolTable* table);
void add_maths_symbols(SymbolTable* table);
void add_matrix_symbols(SymbolTable* table);
void add_wmma_symbols(SymbolTable* table);
void add_wgmma_symbols(SymbolTable* table);
void add_mbarrier_symbols(SymbolTable* table);
void add_device_symbols(SymbolTable* table);
void add_video_symbols(SymbolTable* table);
void add_texture_symbols(SymbolTable* table);
void add_tensor_symbols(SymbolTable* table);
void add_bulk_symbols(SymbolTable* table);
void add_record_symbols(SymbolTable* table);

}  // namespace bandsaw::soft
