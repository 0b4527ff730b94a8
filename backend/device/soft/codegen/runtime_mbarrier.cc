// mbarrier objects in shared memory: 64 bits of our own layout, as PTX leaves it open. A block's warps run on one
// thread.
#include "backend/device/soft/codegen/mbarrier.h"

#include <cstring>

#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

// PTX ISA: counts below 2^20, bytes within +-(2^20 - 1).
constexpr uint64_t kCountMask = (1 << 20) - 1, kTxMask = (1 << 22) - 1;

struct Mbarrier {
  uint64_t expected, pending;  // arrivals of a phase, and those of this one that are to come
  int64_t tx;                  // bytes to come
  uint64_t phase;              // its parity

  static Mbarrier of(uint64_t bits) {
    Mbarrier m;
    m.expected = bits & kCountMask;
    m.pending = bits >> 20 & kCountMask;
    m.tx = static_cast<int64_t>(bits << 2) >> 42;
    m.phase = bits >> 62 & 1;
    return m;
  }
  uint64_t bits() const { return expected | pending << 20 | (static_cast<uint64_t>(tx) & kTxMask) << 40 | phase << 62; }
  void end_if_complete() {
    if (pending != 0 || tx != 0) return;
    pending = expected;
    phase ^= 1;
  }
};

}  // namespace

void complete_bytes(WarpState* warp, uint32_t lane, uint64_t barrier, uint64_t bytes) {
  std::byte* at = resolve(warp, lane, barrier, 8, AccessSpace::kShared, true).pointer;
  uint64_t bits;
  std::memcpy(&bits, at, 8);
  Mbarrier m = Mbarrier::of(bits);
  m.tx -= static_cast<int64_t>(bytes);
  m.end_if_complete();
  bits = m.bits();
  std::memcpy(at, &bits, 8);
}

extern "C" {
static void bsw_mbarrier(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint64_t* a,
                         const uint64_t* b, uint64_t* out, uint32_t op, uint32_t space) {
  for (; mask; mask &= mask - 1) {
    const auto l = static_cast<uint32_t>(__builtin_ctz(mask));
    if (MbarrierOp(op) == MbarrierOp::kPendingCount) {
      out[l] = Mbarrier::of(a[l]).pending;
      continue;
    }
    std::byte* at = resolve(warp, l, addresses[l], 8, AccessSpace(space), true).pointer;
    uint64_t bits;
    std::memcpy(&bits, at, 8);
    Mbarrier m = Mbarrier::of(bits);
    out[l] = bits;
    switch (MbarrierOp(op)) {
      case MbarrierOp::kInit:
        m = {a[l] & kCountMask, a[l] & kCountMask, 0, 0};
        break;
      case MbarrierOp::kInval:
        m = {0, 0, 0, 0};
        break;
      case MbarrierOp::kExpectTx:
        m.tx += static_cast<int64_t>(a[l]);
        break;
      case MbarrierOp::kCompleteTx:
        m.tx -= static_cast<int64_t>(a[l]);
        m.end_if_complete();
        break;
      case MbarrierOp::kArriveDrop:
      case MbarrierOp::kArrive:
        if (MbarrierOp(op) == MbarrierOp::kArriveDrop) m.expected = (m.expected - a[l]) & kCountMask;
        m.tx += static_cast<int64_t>(b[l]);
        m.pending = (m.pending - a[l]) & kCountMask;
        m.end_if_complete();
        break;
      case MbarrierOp::kWaitState:
        out[l] = Mbarrier::of(a[l]).phase != m.phase;
        continue;
      case MbarrierOp::kWaitParity:
        out[l] = (a[l] & 1) != m.phase;
        continue;
      case MbarrierOp::kPendingCount:
        break;
    }
    bits = m.bits();
    std::memcpy(at, &bits, 8);
  }
}
}

void add_mbarrier_symbols(SymbolTable* table) { table->push_back({"bsw_mbarrier", (void*)bsw_mbarrier}); }

}  // namespace bandsaw::soft
