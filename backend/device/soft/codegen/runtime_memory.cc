#include <cstring>

#include "backend/device/soft/codegen/lanes.h"
#include "backend/device/soft/codegen/runtime.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {
namespace {

// What a lane accesses at once: an element, or a vector of them.
template <class T, uint32_t kCount>
struct Whole;
template <class T>
struct Whole<T, 1> {
  using Type = T;
};
template <>
struct Whole<uint16_t, 2> {
  using Type = uint16_t __attribute__((vector_size(4)));
};
template <>
struct Whole<uint16_t, 4> {
  using Type = uint16_t __attribute__((vector_size(8)));
};
template <>
struct Whole<uint32_t, 2> {
  using Type = uint32_t __attribute__((vector_size(8)));
};
template <>
struct Whole<uint32_t, 4> {
  using Type = uint32_t __attribute__((vector_size(16)));
};
template <>
struct Whole<uint64_t, 2> {
  using Type = uint64_t __attribute__((vector_size(16)));
};
using Four = Whole<uint32_t, 4>::Type;

// All lanes' four words as four arrays.
void load_fours(const uint64_t* pointers, uint32_t* out) {
  for (int l = 0; l < kWarpLanes; l += 4) {
    const auto lane = [&](int i) { return *reinterpret_cast<const volatile Four*>(pointers[l + i]); };
    const Four a = lane(0), b = lane(1), c = lane(2), d = lane(3);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const Four turned[] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                           __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5),
                           __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7)};
    for (int i = 0; i < 4; ++i) std::memcpy(out + i * kWarpLanes + l, &turned[i], sizeof(Four));
  }
}

template <class T, uint32_t kCount>
void load_plain(uint32_t mask, const uint64_t* pointers, T* out) {
  if constexpr (sizeof(T) == 4 && kCount == 4) {
    if (mask == ~0u) return load_fours(pointers, out);
  }
  using Type = typename Whole<T, kCount>::Type;
  for_lanes(mask, [&](uint32_t l) {
    const Type whole = *reinterpret_cast<const volatile Type*>(pointers[l]);
    if constexpr (kCount == 1) {
      out[l] = whole;
    } else {
      for (uint32_t i = 0; i < kCount; ++i) out[i * kWarpLanes + l] = whole[i];
    }
  });
}

template <class T, uint32_t kCount>
void store_plain(uint32_t mask, const uint64_t* pointers, const T* in) {
  using Type = typename Whole<T, kCount>::Type;
  for_lanes(mask, [&](uint32_t l) {
    Type whole{};
    if constexpr (kCount == 1) {
      whole = in[l];
    } else {
      for (uint32_t i = 0; i < kCount; ++i) whole[i] = in[i * kWarpLanes + l];
    }
    *reinterpret_cast<volatile Type*>(pointers[l]) = whole;
  });
}

// f.template operator()<element, count>(); false: not for this form.
template <class F>
bool with_form(uint32_t bytes, uint32_t count, F&& f) {
  switch (bytes * 16 + count) {
    case 0x11:
      return f.template operator()<uint8_t, 1>(), true;
    case 0x21:
      return f.template operator()<uint16_t, 1>(), true;
    case 0x22:
      return f.template operator()<uint16_t, 2>(), true;
    case 0x24:
      return f.template operator()<uint16_t, 4>(), true;
    case 0x41:
      return f.template operator()<uint32_t, 1>(), true;
    case 0x42:
      return f.template operator()<uint32_t, 2>(), true;
    case 0x44:
      return f.template operator()<uint32_t, 4>(), true;
    case 0x81:
      return f.template operator()<uint64_t, 1>(), true;
    case 0x82:
      return f.template operator()<uint64_t, 2>(), true;
    default:
      return false;
  }
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
  return !any_lane_outside(addresses, mask, base, size - total, total - 1, add, pointers);
}

void copy_plain(uint32_t mask, const uint64_t* to, const uint64_t* from, uint32_t bytes) {
  const auto copy = [&]<class Type>(Type) {
    for_lanes(mask, [&](uint32_t l) {
      *reinterpret_cast<volatile Type*>(to[l]) = *reinterpret_cast<const volatile Type*>(from[l]);
    });
  };
  if (bytes == 4) return copy(uint32_t{});
  if (bytes == 8) return copy(uint64_t{});
  copy(Four{});
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
  const auto load = [&]<class T, uint32_t kCount>() {
    load_plain<T, kCount>(mask, pointers, reinterpret_cast<T*>(out));
  };
  if (plain_pointers(warp, mask, addresses, pointers, total, space) && with_form(bytes, count, load)) return;
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
  const auto store = [&]<class T, uint32_t kCount>() {
    store_plain<T, kCount>(mask, pointers, reinterpret_cast<const T*>(in));
  };
  if (plain_pointers(warp, mask, addresses, pointers, total, space) && with_form(bytes, count, store)) return;
  for_lanes(mask, [&](uint32_t l) {
    std::byte data[64];
    for (uint32_t i = 0; i < count; ++i) std::memcpy(data + i * bytes, in + (i * kWarpLanes + l) * bytes, bytes);
    write_bytes(warp, l, addresses[l], data, total, AccessSpace(space));
  });
}

// cp.async: copies source_bytes[l] bytes and fills up with zeros.
static void bsw_copy_to_shared(WarpState* warp, uint32_t mask, const uint64_t* to, const uint64_t* from,
                               const uint32_t* source_bytes, uint32_t bytes) {
  alignas(64) uint64_t sources[kWarpLanes], targets[kWarpLanes];
  bool all = plain_pointers(warp, mask, from, sources, bytes, uint32_t(AccessSpace::kGlobal)) &&
             plain_pointers(warp, mask, to, targets, bytes, uint32_t(AccessSpace::kShared));
  for_lanes(mask, [&](uint32_t l) { all = all && source_bytes[l] >= bytes; });
  if (all) return copy_plain(mask, targets, sources, bytes);
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
  if (frame_end > warp->local_bytes - warp->stack_bytes || native_stack < warp->stack_limit)
    bandsaw_fault(warp, uint32_t(Fault::kStackOverflow), native_stack);
}

// Addresses in local memory; `align` is a power of two.
static void bsw_alloca(const uint64_t* bytes, uint64_t* out, WarpState* warp, uint32_t mask, uint64_t align) {
  const uint64_t base = warp->local_bytes - warp->stack_bytes;
  for_lanes(mask, [&](uint32_t l) {
    const uint64_t at = (base + warp->stack_top[l] + align - 1) & ~(align - 1);
    if (at > warp->local_bytes || warp->local_bytes - at < bytes[l])
      bandsaw_fault(warp, uint32_t(Fault::kStackOverflow), kLocalWindow + at);
    warp->stack_top[l] = static_cast<uint32_t>(at + bytes[l] - base);
    out[l] = at;
  });
}
}

void add_memory_symbols(SymbolTable* table) {
  table->insert(table->end(), {{"bsw_load", (void*)bsw_load},
                               {"bsw_store", (void*)bsw_store},
                               {"bsw_copy_to_shared", (void*)bsw_copy_to_shared},
                               {"bsw_bad_local", (void*)bsw_bad_local},
                               {"bsw_enter", (void*)bsw_enter},
                               {"bsw_alloca", (void*)bsw_alloca}});
}

}  // namespace bandsaw::soft
