// Bulk copies and reductions of bytes, and asynchronous stores that tell a barrier (PTX ISA 9.7.9.25, 9.7.9.12).
#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/device/soft/codegen/atomics.h"
#include "backend/device/soft/codegen/bulk.h"
#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kBulkChunk = 16;  // bulk copies are of multiples of it

// f(step to add to addresses) for each block of the cluster that is meant; once for none.
template <class F>
void for_blocks(uint32_t blocks, F&& f) {
  if (!blocks) return f(0);
  for (; blocks; blocks &= blocks - 1) f(uint64_t{static_cast<uint32_t>(std::countr_zero(blocks)) + 1} * kClusterStep);
}

constexpr uint32_t kAllBytes = (1u << kBulkChunk) - 1;

// Which bytes of the chunk at `at` are copied. `part`: the mask, or how many are left out at the beginning, and at the
// end in its upper half.
uint32_t bytes_of_chunk(const BulkForm& form, uint32_t part, uint32_t at, uint32_t bytes) {
  if (form.masked) return part & kAllBytes;
  uint32_t kept = kAllBytes;
  if (form.trimmed && at == 0) kept &= kAllBytes << (part & (kBulkChunk - 1));
  if (form.trimmed && at + kBulkChunk == bytes) kept &= kAllBytes >> (part >> 16 & (kBulkChunk - 1));
  return kept;
}

void copy_some(WarpState* warp, uint32_t lane, uint64_t to, uint64_t from, const BulkForm& form, uint32_t which) {
  for (; which; which &= which - 1) {
    const auto at = static_cast<uint32_t>(std::countr_zero(which));
    std::byte one;
    read_bytes(warp, lane, from + at, &one, 1, AccessSpace(form.from_space));
    write_bytes(warp, lane, to + at, &one, 1, AccessSpace(form.to_space));
  }
}

}  // namespace

extern "C" {
// `blocks`: of the cluster, by bits, where the copy goes to the same offset in several; else null. `parts`: where not
// all bytes are copied, see bytes_of_chunk(); else null.
static void bsw_copy_bulk(WarpState* warp, uint32_t mask, const uint64_t* to, const uint64_t* from,
                          const uint32_t* bytes, const uint32_t* blocks, const uint32_t* parts,
                          const uint64_t* barriers, uint32_t word) {
  const auto form = std::bit_cast<BulkForm>(word);
  for_lanes(mask, [&](uint32_t l) {
    if (bytes[l] % kBulkChunk) bandsaw_fault(warp, uint32_t(Fault::kMisaligned), from[l]);
    for_blocks(blocks ? blocks[l] : 0, [&](uint64_t step) {
      for (uint32_t at = 0; at < bytes[l]; at += kBulkChunk) {
        const uint32_t which = parts ? bytes_of_chunk(form, parts[l], at, bytes[l]) : kAllBytes;
        if (which != kAllBytes) {
          copy_some(warp, l, to[l] + at + step, from[l] + at, form, which);
          continue;
        }
        std::byte chunk[kBulkChunk];
        read_bytes(warp, l, from[l] + at, chunk, kBulkChunk, AccessSpace(form.from_space));
        if (form.reduces)
          reduce_elements(warp, to[l] + at, chunk, kBulkChunk / form.element_bytes, AccessSpace(form.to_space),
                          form.reduction, form.type);
        else
          write_bytes(warp, l, to[l] + at + step, chunk, kBulkChunk, AccessSpace(form.to_space));
      }
      if (form.tells) complete_bytes(warp, l, barriers[l] + step, bytes[l]);
    });
  });
}

// red.async has done its work when its barrier hears of the bytes.
static void bsw_complete(WarpState* warp, uint32_t mask, const uint64_t* barriers, uint32_t bytes) {
  for_lanes(mask, [&](uint32_t l) { complete_bytes(warp, l, barriers[l], bytes); });
}
}

void add_bulk_symbols(SymbolTable* table) {
  table->push_back({"bsw_copy_bulk", (void*)bsw_copy_bulk});
  table->push_back({"bsw_complete", (void*)bsw_complete});
}

}  // namespace bandsaw::soft
