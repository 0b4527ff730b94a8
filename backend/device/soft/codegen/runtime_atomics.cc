// Atomics: lanes in order. Global memory is shared with other worker threads; shared memory belongs to one thread.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "backend/device/soft/codegen/atomics.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/half.h"

namespace bandsaw::soft {
namespace {

struct F16 {
  uint16_t bits;
  float value() const { return from_f16(bits); }
  static F16 of(double v) { return {to_f16(v)}; }
};
struct Bf16 {
  uint16_t bits;
  float value() const { return from_bf16(bits); }
  static Bf16 of(double v) { return {to_bf16(v)}; }
};
template <class H>
struct Pair {
  H low, high;
};

template <class T>
T add(T a, T b) {
  return a + b;
}
F16 add(F16 a, F16 b) { return F16::of(double(a.value()) + b.value()); }
Bf16 add(Bf16 a, Bf16 b) { return Bf16::of(double(a.value()) + b.value()); }
template <class T>
T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T greater(T a, T b) {
  return a < b ? b : a;
}
template <class H, class F>
H half_choice(H a, H b, F f) {
  float x = a.value(), y = b.value();
  if (std::isnan(x)) return b;
  if (std::isnan(y)) return a;
  return f(x, y) ? a : b;
}
F16 lesser(F16 a, F16 b) {
  return half_choice(a, b, [](float x, float y) { return x < y; });
}
F16 greater(F16 a, F16 b) {
  return half_choice(a, b, [](float x, float y) { return x > y; });
}
Bf16 lesser(Bf16 a, Bf16 b) {
  return half_choice(a, b, [](float x, float y) { return x < y; });
}
Bf16 greater(Bf16 a, Bf16 b) {
  return half_choice(a, b, [](float x, float y) { return x > y; });
}
template <class H>
Pair<H> add(Pair<H> a, Pair<H> b) {
  return {add(a.low, b.low), add(a.high, b.high)};
}
template <class H>
Pair<H> lesser(Pair<H> a, Pair<H> b) {
  return {lesser(a.low, b.low), lesser(a.high, b.high)};
}
template <class H>
Pair<H> greater(Pair<H> a, Pair<H> b) {
  return {greater(a.low, b.low), greater(a.high, b.high)};
}

template <class T>
T next_value(AtomicOp op, T old, T a, T c) {
  switch (op) {
    case AtomicOp::kAdd:
      return add(old, a);
    case AtomicOp::kMin:
      return lesser(old, a);
    case AtomicOp::kMax:
      return greater(old, a);
    case AtomicOp::kExch:
      return a;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case AtomicOp::kAnd:
        return old & a;
      case AtomicOp::kOr:
        return old | a;
      case AtomicOp::kXor:
        return old ^ a;
      case AtomicOp::kInc:
        return old >= a ? 0 : old + 1;
      case AtomicOp::kDec:
        return old == 0 || old > a ? a : old - 1;
      case AtomicOp::kCas:
        return old == a ? c : old;
      default:
        break;
    }
  }
  return old;
}

__extension__ using Wide = unsigned __int128;

template <size_t N>
using Word = std::conditional_t<N == 2, uint16_t, std::conditional_t<N == 4, uint32_t, uint64_t>>;

template <class T>
T atomic_one(AtomicOp op, std::byte* pointer, T a, T c) {
  using W = Word<sizeof(T)>;
  auto* word = reinterpret_cast<W*>(pointer);
  if constexpr (std::is_integral_v<T>) {
    if (op == AtomicOp::kAdd) return static_cast<T>(__atomic_fetch_add(word, static_cast<W>(a), __ATOMIC_SEQ_CST));
    if (op == AtomicOp::kExch) return static_cast<T>(__atomic_exchange_n(word, static_cast<W>(a), __ATOMIC_SEQ_CST));
  }
  W old = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    T next = next_value<T>(op, std::bit_cast<T>(old), a, c);
    if (__atomic_compare_exchange_n(word, &old, std::bit_cast<W>(next), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return std::bit_cast<T>(old);
  }
}

// A block's warps run on one thread, one after another: its shared memory needs no lock.
template <class T>
void shared_lanes(WarpState* warp, uint32_t mask, const uint64_t* addresses, const T* a, const T* c, T* out,
                  AtomicOp op) {
  const auto each = [&](auto next) {
    for (; mask; mask &= mask - 1) {
      const auto l = static_cast<uint32_t>(__builtin_ctz(mask));
      std::byte* at = warp->shared + addresses[l];
      const bool inside = addresses[l] <= uint64_t{warp->shared_bytes} - sizeof(T) && warp->shared_bytes >= sizeof(T);
      if (!inside || addresses[l] % sizeof(T))
        at = resolve(warp, l, addresses[l], sizeof(T), AccessSpace::kShared, true).pointer;
      T old;
      std::memcpy(&old, at, sizeof old);
      const T value = next(old, l);
      std::memcpy(at, &value, sizeof value);
      out[l] = old;
    }
  };
  if (op == AtomicOp::kAdd)
    return each([&](T old, uint32_t l) { return next_value<T>(AtomicOp::kAdd, old, a[l], c[l]); });
  each([&](T old, uint32_t l) { return next_value<T>(op, old, a[l], c[l]); });
}

template <class T>
void all_lanes(WarpState* warp, uint32_t mask, const uint64_t* addresses, const void* in, const void* third, void* out,
               AccessSpace space, AtomicOp op) {
  const T* a = static_cast<const T*>(in);
  const T* c = static_cast<const T*>(third);
  T* result = static_cast<T*>(out);
  if (space == AccessSpace::kShared) return shared_lanes<T>(warp, mask, addresses, a, c, result, op);
  if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
    // Many kernels add into one counter: one memory operation for the whole warp.
    if (op == AtomicOp::kAdd && (mask & (mask - 1))) {
      uint32_t first = __builtin_ctz(mask);
      bool same = true;
      for (uint32_t m = mask; m; m &= m - 1) same = same && addresses[__builtin_ctz(m)] == addresses[first];
      Resolved r = resolve(warp, first, addresses[first], sizeof(T), space, true);
      if (same && !r.local) {
        T sum = 0;
        alignas(64) T before[kWarpLanes];
        for (uint32_t m = mask; m; m &= m - 1) {
          uint32_t l = __builtin_ctz(m);
          before[l] = sum;
          sum += a[l];
        }
        T base = atomic_one<T>(op, r.pointer, sum, 0);
        for (uint32_t m = mask; m; m &= m - 1) result[__builtin_ctz(m)] = base + before[__builtin_ctz(m)];
        return;
      }
    }
  }
  for (; mask; mask &= mask - 1) {
    uint32_t l = __builtin_ctz(mask);
    Resolved r = resolve(warp, l, addresses[l], sizeof(T), space, true);
    if (r.local) {  // each lane's own: no other thread sees it
      T old;
      read_bytes(warp, l, addresses[l], &old, sizeof(T), space);
      T next = next_value<T>(op, old, a[l], c[l]);
      write_bytes(warp, l, addresses[l], &next, sizeof(T), space);
      result[l] = old;
    } else {
      result[l] = atomic_one<T>(op, r.pointer, a[l], c[l]);
    }
  }
}

void add_to(std::byte* at, uint32_t value) {
  uint32_t sum;
  std::memcpy(&sum, at, 4);
  sum += value;
  std::memcpy(at, &sum, 4);
}

}  // namespace

extern "C" {
// red.shared.add of 32 bits, and atom without a use of its result: in all lanes, whose addresses have been checked.
static void bsw_shared_add_all(std::byte* shared, const uint32_t* addresses, const uint32_t* a) {
#pragma GCC unroll 32
  for (uint32_t l = 0; l < kWarpLanes; ++l) add_to(shared + addresses[l], a[l]);
}

// The same, of some lanes or anywhere.
static void bsw_shared_add(WarpState* warp, uint32_t mask, const uint32_t* addresses, const uint32_t* a) {
  for_lanes(mask, [&](uint32_t l) {
    const bool bad = uint64_t{addresses[l]} + 4 > warp->shared_bytes || addresses[l] % 4;
    add_to(bad ? resolve(warp, l, addresses[l], 4, AccessSpace::kShared, true).pointer : warp->shared + addresses[l],
           a[l]);
  });
}

// Of 128 bits: an exchange, or a comparison with `a` that stores `c`.
__attribute__((target("cx16"))) static void bsw_wide_atomic(WarpState* warp, uint32_t mask, const uint64_t* addresses,
                                                            const Wide* a, const Wide* c, Wide* out, uint32_t space,
                                                            uint32_t compares) {
  for (; mask; mask &= mask - 1) {
    const uint32_t l = __builtin_ctz(mask);
    const Resolved r = resolve(warp, l, addresses[l], sizeof(Wide), AccessSpace(space), true);
    if (r.local) bandsaw_fault(warp, uint32_t(Fault::kInvalidAddressSpace), addresses[l]);
    auto* at = reinterpret_cast<Wide*>(r.pointer);
    if (compares) {
      out[l] = __sync_val_compare_and_swap(at, a[l], c[l]);
      continue;
    }
    Wide old = 0;
    for (Wide seen; (seen = __sync_val_compare_and_swap(at, old, a[l])) != old;) old = seen;
    out[l] = old;
  }
}

static void bsw_atomic(WarpState* warp, uint32_t mask, const uint64_t* addresses, const void* a, const void* c,
                       void* out, uint32_t space, uint32_t op, uint32_t type) {
  if (!mask) return;
  auto run = [&](auto zero) {
    all_lanes<decltype(zero)>(warp, mask, addresses, a, c, out, AccessSpace(space), AtomicOp(op));
  };
  switch (AtomicType(type)) {
    case AtomicType::kU32:
      return run(uint32_t{});
    case AtomicType::kS32:
      return run(int32_t{});
    case AtomicType::kU64:
      return run(uint64_t{});
    case AtomicType::kS64:
      return run(int64_t{});
    case AtomicType::kF32:
      return run(float{});
    case AtomicType::kF64:
      return run(double{});
    case AtomicType::kF16:
      return run(F16{});
    case AtomicType::kBf16:
      return run(Bf16{});
    case AtomicType::kF16x2:
      return run(Pair<F16>{});
    case AtomicType::kBf16x2:
      return run(Pair<Bf16>{});
    case AtomicType::kU16:
      return run(uint16_t{});
  }
}
}

void reduce_elements(WarpState* warp, uint64_t address, const std::byte* data, uint32_t count, AccessSpace space,
                     uint32_t op, uint32_t type) {
  const auto kind = AtomicType(type);
  const uint32_t bytes = kind == AtomicType::kU64 || kind == AtomicType::kS64 || kind == AtomicType::kF64 ? 8
                         : kind == AtomicType::kF16 || kind == AtomicType::kBf16                          ? 2
                                                                                                          : 4;
  for (uint32_t at = 0; at < count; at += kWarpLanes) {
    const uint32_t n = std::min<uint32_t>(count - at, kWarpLanes);
    uint64_t addresses[kWarpLanes] = {};
    for (uint32_t i = 0; i < n; ++i) addresses[i] = address + uint64_t{at + i} * bytes;
    alignas(64) std::byte in[8 * kWarpLanes] = {}, third[8 * kWarpLanes] = {}, out[8 * kWarpLanes];
    std::memcpy(in, data + size_t{at} * bytes, size_t{n} * bytes);
    bsw_atomic(warp, n == kWarpLanes ? ~0u : (1u << n) - 1, addresses, in, third, out, uint32_t(space), op, type);
  }
}

void add_atomic_symbols(SymbolTable* table) {
  table->push_back({"bsw_atomic", (void*)bsw_atomic});
  table->push_back({"bsw_shared_add", (void*)bsw_shared_add});
  table->push_back({"bsw_shared_add_all", (void*)bsw_shared_add_all});
  table->push_back({"bsw_wide_atomic", (void*)bsw_wide_atomic});
}

}  // namespace bandsaw::soft
