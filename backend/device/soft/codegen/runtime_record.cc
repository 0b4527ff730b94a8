// Helpers of code that records: stretches, and the lines or banks that an access touches.
#include "backend/device/soft/warp_recording.h"

#include <algorithm>
#include <array>
#include <bit>

#include "backend/device/soft/codegen/runtime.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kBanks = 32, kWordBytes = 4, kLargestAccess = 16;
// Local memory in the model's address space, apart from all that windows hold: a word of all lanes is a line.
constexpr uint64_t kLocalLines = uint64_t{1} << 56;

// Room for `count` more words; false: the warp's trace is full, and nothing more is recorded.
bool room(WarpRecording* recording, size_t count) {
  timing::WarpTrace& trace = recording->trace;
  if (trace.cut) return false;
  if (trace.words.size() + count <= recording->most) return true;
  trace.cut = true;
  recording->full(recording);
  return false;
}

class Lines {
 public:
  void add(uint64_t address, uint32_t bytes) {
    const uint64_t last = address + std::max(bytes, 1u) - 1;
    for (uint64_t sector = address / timing::kSectorBytes; sector <= last / timing::kSectorBytes; ++sector)
      add_sector(sector);
  }
  void write(WarpRecording* recording) const {
    if (!room(recording, 1 + 2 * count_)) return;
    auto& words = recording->trace.words;
    words.push_back(timing::kLines | static_cast<uint32_t>(count_) << 24);
    for (size_t i = 0; i < count_; ++i) {
      words.push_back(static_cast<uint32_t>(lines_[i]));
      words.push_back(static_cast<uint32_t>(lines_[i] >> 32));
    }
  }

 private:
  void add_sector(uint64_t sector) {
    constexpr uint64_t kSectors = timing::kLineBytes / timing::kSectorBytes;
    const uint64_t line = sector / kSectors * timing::kLineBytes;
    size_t i = 0;
    while (i < count_ && (lines_[i] & ~uint64_t{timing::kAllSectors}) != line) ++i;
    if (i == lines_.size()) return;  // accesses that cross lines fault: there are no more lines than lanes
    if (i == count_) lines_[count_++] = line;
    lines_[i] |= uint64_t{1} << sector % kSectors;
  }
  std::array<uint64_t, timing::kMostLanes> lines_{};
  size_t count_ = 0;
};

// How often the banks must turn until each lane had its words: those that share one get it at once.
uint32_t bank_turns(uint32_t mask, const uint64_t* offsets, uint32_t bytes) {
  std::array<uint64_t, kWarpLanes * kLargestAccess / kWordBytes> words;
  size_t count = 0;
  for_lanes(mask, [&](uint32_t lane) {
    for (uint32_t at = 0; at < std::clamp(bytes, kWordBytes, kLargestAccess); at += kWordBytes)
      words[count++] = (offsets[lane] + at) / kWordBytes;
  });
  std::sort(words.begin(), words.begin() + static_cast<ptrdiff_t>(count));
  const auto end = std::unique(words.begin(), words.begin() + static_cast<ptrdiff_t>(count));
  std::array<uint32_t, kBanks> turns{};
  for (auto word = words.begin(); word != end; ++word) ++turns[*word % kBanks];
  return *std::max_element(turns.begin(), turns.end());
}

AccessSpace space_of(uint64_t address) {
  const uint64_t offset = address - kSharedWindow;
  if (offset < kSpaceWindowBytes) return AccessSpace::kShared;
  return address - kLocalWindow < kSpaceWindowBytes ? AccessSpace::kLocal : AccessSpace::kGlobal;
}

extern "C" {
static void bsw_record_stretch(WarpState* warp, uint32_t mask, uint32_t counter) {
  WarpRecording* const recording = warp->recording;
  if (!recording || !room(recording, 1)) return;
  recording->trace.words.push_back(timing::kStretch | static_cast<uint32_t>(std::popcount(mask)) << 24 | counter);
}

static void bsw_record_access(WarpState* warp, uint32_t mask, const uint64_t* addresses, uint32_t bytes,
                              uint32_t space) {
  WarpRecording* const recording = warp->recording;
  if (!recording || recording->trace.cut) return;
  AccessSpace where = static_cast<AccessSpace>(space);
  if (where == AccessSpace::kGeneric && mask) where = space_of(addresses[std::countr_zero(mask)]);
  if (where == AccessSpace::kShared) {
    if (room(recording, 1)) recording->trace.words.push_back(timing::kBanks | bank_turns(mask, addresses, bytes));
    return;
  }
  Lines lines;
  for_lanes(mask, [&](uint32_t lane) {
    if (where != AccessSpace::kLocal) return lines.add(addresses[lane], bytes);
    const uint64_t offset = addresses[lane] & (kSpaceWindowBytes - 1);
    const uint64_t first = (uint64_t{recording->local_index} << 24) + offset / kWordBytes;
    lines.add(kLocalLines + first * timing::kLineBytes + lane * kWordBytes, kWordBytes);
  });
  lines.write(recording);
}
}

}  // namespace

void add_record_symbols(SymbolTable* table) {
  table->push_back({"bsw_record_stretch", reinterpret_cast<void*>(bsw_record_stretch)});
  table->push_back({"bsw_record_access", reinterpret_cast<void*>(bsw_record_access)});
}

}  // namespace bandsaw::soft
