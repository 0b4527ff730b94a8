#include <cstring>

#include "backend/device/soft/codegen/runtime.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {
namespace {

template <class T>
void load_plain(uint32_t mask, const uint64_t* addresses, T* out) {
  for_lanes(mask, [&](uint32_t l) { out[l] = *reinterpret_cast<const volatile T*>(addresses[l]); });
}
template <class T>
void store_plain(uint32_t mask, const uint64_t* addresses, const T* in) {
  for_lanes(mask, [&](uint32_t l) { *reinterpret_cast<volatile T*>(addresses[l]) = in[l]; });
}

// Turns the addresses into pointers if all are in one plain space and aligned; false: go lane by lane.
bool plain_pointers(const WarpState* warp, uint32_t mask, const uint64_t* addresses, uint64_t* pointers, uint32_t total,
                    uint32_t space) {
  uint64_t base = warp->window_base, size = VGPU_WINDOW_BYTES, add = 0;
  if (space == uint32_t(AccessSpace::kLocal)) return false;
  if (space == uint32_t(AccessSpace::kShared)) {
    base = 0;
    size = warp->shared_bytes;
    add = reinterpret_cast<uint64_t>(warp->shared);
  }
  if (size < total) return false;
  uint64_t bad = 0;
  for (int l = 0; l < kWarpLanes; ++l) {
    uint64_t wrong = (addresses[l] - base > size - total) | ((addresses[l] & (total - 1)) != 0);
    bad |= wrong & (mask >> l);
    pointers[l] = addresses[l] + add;
  }
  return !(bad & 1);
}

}  // namespace

Resolved resolve(WarpState* warp, uint32_t lane, uint64_t address, uint32_t bytes, AccessSpace space, bool write) {
  if (address & (bytes - 1)) bandsaw_fault(warp, uint32_t(Fault::kMisaligned), address);
  const Resolved found = find_bytes(*warp, lane, address, bytes, space, write);
  if (found.kind == Resolved::kFound) return found;
  if (found.kind == Resolved::kNowhere) bandsaw_fault(warp, uint32_t(Fault::kIllegalAddress), address);
  return {Resolved::kFound, false, static_cast<std::byte*>(bandsaw_translate(warp, address, bytes))};
}

void read_bytes(WarpState* warp, uint32_t lane, uint64_t address, void* to, uint32_t bytes, AccessSpace space) {
  Resolved r = resolve(warp, lane, address, bytes, space, false);
  if (!r.local || bytes <= 4) {
    std::memcpy(to, r.pointer, bytes);
    return;
  }
  for (uint32_t i = 0; i < bytes; i += 4) std::memcpy(static_cast<std::byte*>(to) + i, r.pointer + i * kWarpLanes, 4);
}

void write_bytes(WarpState* warp, uint32_t lane, uint64_t address, const void* from, uint32_t bytes,
                 AccessSpace space) {
  Resolved r = resolve(warp, lane, address, bytes, space, true);
  if (!r.local || bytes <= 4) {
    std::memcpy(r.pointer, from, bytes);
    return;
  }
  for (uint32_t i = 0; i < bytes; i += 4)
    std::memcpy(r.pointer + i * kWarpLanes, static_cast<const std::byte*>(from) + i, 4);
}

extern "C" {

// out: `count` arrays of 32 elements of `bytes` bytes; lane l's elements lie one after another at addresses[l].
static void bsw_load(WarpState* warp, uint32_t mask, const uint64_t* addresses, std::byte* out, uint32_t bytes,
                     uint32_t count, uint32_t space) {
  uint32_t total = bytes * count;
  alignas(64) uint64_t pointers[kWarpLanes];
  if (count == 1 && plain_pointers(warp, mask, addresses, pointers, total, space)) {
    switch (bytes) {
      case 1:
        return load_plain(mask, pointers, reinterpret_cast<uint8_t*>(out));
      case 2:
        return load_plain(mask, pointers, reinterpret_cast<uint16_t*>(out));
      case 4:
        return load_plain(mask, pointers, reinterpret_cast<uint32_t*>(out));
      default:
        return load_plain(mask, pointers, reinterpret_cast<uint64_t*>(out));
    }
  }
  for_lanes(mask, [&](uint32_t l) {
    std::byte data[64];
    read_bytes(warp, l, addresses[l], data, total, AccessSpace(space));
    for (uint32_t i = 0; i < count; ++i) std::memcpy(out + (i * kWarpLanes + l) * bytes, data + i * bytes, bytes);
  });
}

static void bsw_store(WarpState* warp, uint32_t mask, const uint64_t* addresses, const std::byte* in, uint32_t bytes,
                      uint32_t count, uint32_t space) {
  uint32_t total = bytes * count;
  alignas(64) uint64_t pointers[kWarpLanes];
  if (count == 1 && plain_pointers(warp, mask, addresses, pointers, total, space)) {
    switch (bytes) {
      case 1:
        return store_plain(mask, pointers, reinterpret_cast<const uint8_t*>(in));
      case 2:
        return store_plain(mask, pointers, reinterpret_cast<const uint16_t*>(in));
      case 4:
        return store_plain(mask, pointers, reinterpret_cast<const uint32_t*>(in));
      default:
        return store_plain(mask, pointers, reinterpret_cast<const uint64_t*>(in));
    }
  }
  for_lanes(mask, [&](uint32_t l) {
    std::byte data[64];
    for (uint32_t i = 0; i < count; ++i) std::memcpy(data + i * bytes, in + (i * kWarpLanes + l) * bytes, bytes);
    write_bytes(warp, l, addresses[l], data, total, AccessSpace(space));
  });
}

// cp.async: copies source_bytes[l] bytes and fills up with zeros.
static void bsw_copy_to_shared(WarpState* warp, uint32_t mask, const uint64_t* to, const uint64_t* from,
                               const uint32_t* source_bytes, uint32_t bytes) {
  for_lanes(mask, [&](uint32_t l) {
    std::byte data[16] = {};
    uint32_t n = source_bytes[l] < bytes ? source_bytes[l] : bytes;
    if (n == bytes) {
      read_bytes(warp, l, from[l], data, bytes, AccessSpace::kGlobal);
    } else {
      for (uint32_t i = 0; i < n; ++i) read_bytes(warp, l, from[l] + i, data + i, 1, AccessSpace::kGlobal);
    }
    write_bytes(warp, l, to[l], data, bytes, AccessSpace::kShared);
  });
}

static void bsw_bad_local(WarpState* warp, uint32_t mask, uint64_t offset, uint32_t bytes) {
  if (!mask) return;
  bool misaligned = offset & (bytes - 1);
  bandsaw_fault(warp, uint32_t(misaligned ? Fault::kMisaligned : Fault::kIllegalAddress), kLocalWindow + offset);
}

// A function begins: its local memory must fit, and the native stack must not run out.
static void bsw_enter(WarpState* warp, uint32_t frame_end, uint64_t native_stack) {
  if (frame_end > warp->local_bytes || native_stack < warp->stack_limit)
    bandsaw_fault(warp, uint32_t(Fault::kStackOverflow), native_stack);
}
}

void add_memory_symbols(SymbolTable* table) {
  table->insert(table->end(), {{"bsw_load", (void*)bsw_load},
                               {"bsw_store", (void*)bsw_store},
                               {"bsw_copy_to_shared", (void*)bsw_copy_to_shared},
                               {"bsw_bad_local", (void*)bsw_bad_local},
                               {"bsw_enter", (void*)bsw_enter}});
}

}  // namespace bandsaw::soft
