// The functions that CUDA declares for device code, and the table of all symbols.
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

constexpr size_t kLongestText = 64 * 1024;
constexpr uint32_t kPrintfArguments = 32 * 8;

std::string text_at(WarpState* warp, uint32_t lane, uint64_t address) {
  std::string s;
  for (; s.size() < kLongestText; ++address) {
    char c;
    read_bytes(warp, lane, address, &c, 1, AccessSpace::kGeneric);
    if (!c) break;
    s += c;
  }
  return s;
}

}  // namespace

extern "C" {
static void* bsw_same(void* pointer) { return pointer; }

static void bsw_vprintf(WarpState* warp, uint32_t mask, const uint64_t* format, const uint64_t* arguments,
                        uint64_t* out) {
  for (; mask; mask &= mask - 1) {
    uint32_t l = __builtin_ctz(mask);
    // Arguments lie in the lane's local memory, whose end bounds them.
    alignas(16) std::byte packed[kPrintfArguments] = {};
    uint64_t offset = arguments[l] - kLocalWindow;
    bool local = offset < kSpaceWindowBytes;
    for (uint32_t i = 0; arguments[l] != 0 && i < kPrintfArguments; i += 4) {
      if (local && offset + i + 4 > warp->local_bytes) break;
      if (!local && i >= 128) break;
      read_bytes(warp, l, arguments[l] + i, packed + i, 4, AccessSpace::kGeneric);
    }
    int32_t printed;
    {
      std::string text = text_at(warp, l, format[l]);
      printed = bandsaw_vprintf(warp, l, text.c_str(), packed, sizeof packed);
    }
    out[l] = static_cast<uint64_t>(static_cast<uint32_t>(printed));
  }
}

static void bsw_assertfail(WarpState* warp, uint32_t mask, const uint64_t* message, const uint64_t* file,
                           const uint64_t* line, const uint64_t* function, const uint64_t*) {
  if (!mask) return;
  // Copies on the stack: the call does not return, so nothing may need a destructor.
  uint32_t l = __builtin_ctz(mask);
  char texts[3][1024];
  const uint64_t from[3] = {message[l], file[l], function[l]};
  for (int t = 0; t < 3; ++t) {
    size_t n = 0;
    for (; from[t] && n + 1 < sizeof texts[t]; ++n) {
      read_bytes(warp, l, from[t] + n, &texts[t][n], 1, AccessSpace::kGeneric);
      if (!texts[t][n]) break;
    }
    texts[t][n] = 0;
  }
  bandsaw_assert(warp, l, texts[0], texts[1], static_cast<uint32_t>(line[l]), texts[2]);
}

static void bsw_malloc(WarpState* warp, uint32_t mask, const uint64_t* bytes, uint64_t* out) {
  for (; mask; mask &= mask - 1) out[__builtin_ctz(mask)] = bandsaw_malloc(warp, bytes[__builtin_ctz(mask)]);
}
static void bsw_free(WarpState* warp, uint32_t mask, const uint64_t* address) {
  for (; mask; mask &= mask - 1)
    if (address[__builtin_ctz(mask)]) bandsaw_free(warp, address[__builtin_ctz(mask)]);
}
static void* bsw_find_function(FunctionFinder* functions, uint64_t address, uint64_t signature) {
  return functions->find(address, signature);
}

static bool bsw_any_bit(const uint64_t* bits, uint32_t words) {
  return std::any_of(bits, bits + words, [](uint64_t word) { return word != 0; });
}
static bool bsw_any_bit_until(const uint64_t* bits, uint32_t last) {
  return bsw_any_bit(bits, last / 64) || bits[last / 64] << (63 - last % 64) != 0;
}
// Whether there are no bits but parked ones; these are then as the others.
static bool bsw_all_parked(const uint64_t* bits, uint64_t* parked, uint32_t words) {
  for (uint32_t i = 0; i < words; ++i)
    if (bits[i] & ~parked[i]) return false;
  std::fill_n(parked, words, 0);
  return true;
}
// Takes away the first bit that is not parked, from `from` on if there is one, and gives its number.
static uint32_t bsw_pick_bit(uint64_t* bits, const uint64_t* parked, uint32_t words, uint32_t from) {
  const auto first = [&](uint32_t begin) {
    for (uint32_t i = begin / 64; i < words; ++i) {
      uint64_t found = bits[i] & ~parked[i];
      if (i == begin / 64) found &= ~uint64_t{0} << begin % 64;
      if (found) return i * 64 + static_cast<uint32_t>(std::countr_zero(found));
    }
    return words * 64;
  };
  uint32_t index = first(from);
  if (index == words * 64) index = first(0);
  bits[index / 64] &= ~(uint64_t{1} << index % 64);
  return index;
}

static void bsw_run_pieces(WarpState* warp, FunctionFinder* functions, uint64_t kernel, uint32_t count,
                           std::byte* frame, uint64_t place) {
  PieceTable& pieces = functions->pieces(kernel, count);
  while (place != kNoPlace) {
    const PieceCode code = pieces.code(piece_of(place));
    if (!code) bandsaw_fault(warp, static_cast<uint32_t>(Fault::kInvalidPc), 0);
    place = code(warp, frame, place);
  }
}
static uint64_t bsw_globaltimer() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}
}

#ifdef __x86_64__
// The C++ compiler's own, named by their addresses alone: they take and return _Float16, which not every C++ has.
extern "C" {
void __extendhfsf2();
void __extendhfdf2();
void __truncsfhf2();
void __truncdfhf2();
}
#endif

void add_call_symbols(SymbolTable* table) {
  auto add = [&](const char* name, auto* f) { table->push_back({name, reinterpret_cast<void*>(f)}); };
  add("bsw_vprintf", bsw_vprintf);
  add("bsw___assertfail", bsw_assertfail);
  add("bsw_same", bsw_same);
  add("bsw_find_function", bsw_find_function);
  add("bsw_run_pieces", bsw_run_pieces);
  add("bsw_any_bit", bsw_any_bit);
  add("bsw_any_bit_until", bsw_any_bit_until);
  add("bsw_all_parked", bsw_all_parked);
  add("bsw_pick_bit", bsw_pick_bit);
  add("bsw_malloc", bsw_malloc);
  add("bsw_free", bsw_free);
  add("bsw_globaltimer", bsw_globaltimer);
  add("bandsaw_fault", bandsaw_fault);
  add("bandsaw_cancelled", bandsaw_cancelled);
  add("bandsaw_barrier", bandsaw_barrier);
  add("bandsaw_cluster_arrive", bandsaw_cluster_arrive);
  add("bandsaw_cluster_wait", bandsaw_cluster_wait);
  add("bandsaw_exit", bandsaw_exit);
  add("bandsaw_yield", bandsaw_yield);
  // What LLVM itself may call.
  add("memcpy", static_cast<void* (*)(void*, const void*, size_t)>(std::memcpy));
  add("memmove", static_cast<void* (*)(void*, const void*, size_t)>(std::memmove));
  add("memset", static_cast<void* (*)(void*, int, size_t)>(std::memset));
  add("fma", static_cast<double (*)(double, double, double)>(::fma));
  add("fmaf", ::fmaf);
  add("floor", static_cast<double (*)(double)>(::floor));
  add("floorf", ::floorf);
  add("ceil", static_cast<double (*)(double)>(::ceil));
  add("ceilf", ::ceilf);
  add("trunc", static_cast<double (*)(double)>(::trunc));
  add("truncf", ::truncf);
  add("roundeven", static_cast<double (*)(double)>(::nearbyint));
  add("roundevenf", ::nearbyintf);
#ifdef __x86_64__
  // Where the processor has no conversions of f16 (F16C).
  add("__extendhfsf2", __extendhfsf2);
  add("__extendhfdf2", __extendhfdf2);
  add("__truncsfhf2", __truncsfhf2);
  add("__truncdfhf2", __truncdfhf2);
#endif
}

SymbolTable runtime_symbols() {
  SymbolTable table;
  add_memory_symbols(&table);
  add_atomic_symbols(&table);
  add_integer_symbols(&table);
  add_float_symbols(&table);
  add_half_symbols(&table);
  add_rounding_symbols(&table);
  add_call_symbols(&table);
  add_maths_symbols(&table);
  add_matrix_symbols(&table);
  add_mbarrier_symbols(&table);
  add_wmma_symbols(&table);
  add_wgmma_symbols(&table);
  add_tensor_symbols(&table);
  add_bulk_symbols(&table);
  add_device_symbols(&table);
  add_video_symbols(&table);
  add_texture_symbols(&table);
  add_record_symbols(&table);
  return table;
}

}  // namespace bandsaw::soft
