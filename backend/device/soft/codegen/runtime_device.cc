// Calls of the device runtime, lane by lane: arguments are rows of 32 words, answers may go to the program's memory.
#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {

extern "C" {
static void bsw_device_call(WarpState* warp, uint32_t mask, uint32_t call, const uint64_t* rows, uint64_t* out) {
  for (; mask; mask &= mask - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask));
    uint64_t words[kDeviceCallWords];
    for (uint32_t i = 0; i < kDeviceCallWords; ++i) words[i] = rows[i * kWarpLanes + lane];
    DeviceAnswer answer;
    bandsaw_device_call(warp, lane, static_cast<DeviceCall>(call), words, &answer);
    // Word by word: local memory has its words apart.
    for (uint32_t at = 0; at < answer.bytes; at += 4) {
      write_bytes(warp, lane, answer.to + at, answer.data + at, 4, AccessSpace::kGeneric);
    }
    out[lane] = answer.value;
  }
}
}

void add_device_symbols(SymbolTable* table) {
  table->push_back({"bsw_device_call", reinterpret_cast<void*>(bsw_device_call)});
}

}  // namespace bandsaw::soft
