// What the warps of one kernel launch did, as the software device records it and the timing model replays it: the code
// as a list of instructions, and for each warp the order in which it ran parts of that list and what memory it touched.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bandsaw::soft::timing {

// By the hardware that executes it.
enum class Kind : uint8_t {
  kSimple,       // integers, single and half precision
  kSpecial,      // roots, sines, divisions
  kDouble,       // double precision
  kMatrix,       // tensor cores
  kConstant,     // constant memory and parameters
  kLoad,         // with an access in the trace
  kStore,        // the same
  kAtomic,       // the same
  kOtherAccess,  // memory that the trace says nothing of: textures, matrix and bulk copies
  kBranch,
  kBarrier,  // waits for warps of its block
  kArrive,   // tells such a barrier and goes on
};
inline constexpr uint32_t kKinds = static_cast<uint32_t>(Kind::kArrive) + 1;

struct Instruction {
  Kind kind = Kind::kSimple;
  bool ends_stretch = false;                  // what comes next stands in the trace
  bool global_load = false;                   // a load of global memory, by its PTX: what ELF counts instructions to
  uint32_t barrier = 0, barrier_threads = 0;  // its number; threads that it waits for, 0: the whole block
  int32_t target = -1;                        // of a branch
  uint32_t line = 0;                          // in the PTX
  std::vector<uint32_t> reads, writes;        // registers
};

// Instructions follow each other as in the PTX; a program counter is an index.
struct Code {
  std::vector<Instruction> instructions;
  uint32_t registers = 0;
};

// A warp's events, in words.
//  stretch:  kStretch | lanes << 24 | program counter: the instructions from there on, up to one that ends a stretch
//  access:   kLines | n << 24, and n times two words (lower first): the address of a line with its sectors in the lower
//            bits; of one instruction of the stretch that runs, in their order. kBanks | n: an access to shared memory
//            that takes n turns of the banks.
inline constexpr uint32_t kEventMask = 3u << 30, kStretch = 0, kLines = 1u << 30, kBanks = 2u << 30;
inline constexpr uint32_t kMostInstructions = 1 << 24, kMostRegisters = 1 << 16;
inline constexpr uint32_t kLineBytes = 128, kSectorBytes = 32, kAllSectors = 15;
inline constexpr uint32_t kMostLanes = 32, kMostTurns = 1024;

inline uint32_t lanes_of(uint32_t word) { return word >> 24 & 63; }
inline uint32_t counter_of(uint32_t word) { return word & (kMostInstructions - 1); }

// Calls `use(word, lines)` for each event of checked words; `lines`: the words that follow it.
template <class Use>
void for_events(std::span<const uint32_t> words, Use use) {
  for (size_t at = 0; at < words.size();) {
    const uint32_t word = words[at++];
    const size_t length = (word & kEventMask) == kLines ? 2 * size_t{lanes_of(word)} : 0;
    use(word, words.subspan(at, length));
    at += length;
  }
}

struct WarpTrace {
  uint64_t block = 0;  // number in the grid
  uint32_t warp = 0;   // in the block
  bool cut = false;    // it did more than stands here
  std::vector<uint32_t> words;
};

// Some SMs of a GPU, and the blocks of a grid that fall to them: it gives block after block to SM after SM, so that
// neighbours are on different ones.
struct Part {
  uint32_t sms = 1, total_sms = 1;  // 1 <= sms <= total_sms

  bool has(uint64_t block) const { return block % total_sms < sms; }
  // How many of a grid's first `blocks` it has: also the place of block number `blocks` among those that it has.
  uint64_t blocks_of(uint64_t blocks) const {
    const uint64_t rest = blocks % total_sms;
    return blocks / total_sms * sms + (rest < sms ? rest : sms);
  }
};

struct LaunchTrace {
  std::string kernel;
  uint64_t launch = 0;  // of this kernel, from 0 on
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0, registers = 0;  // of a block; of a thread
  Code code;
  Part part;                     // whose blocks were recorded
  std::vector<WarpTrace> warps;  // by block, then by number
  bool cut = false;              // warps are missing, or a warp is cut

  uint64_t blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
  uint32_t threads() const { return block[0] * block[1] * block[2]; }
  uint32_t block_warps() const { return (threads() + kMostLanes - 1) / kMostLanes; }
};

// A file begins with everything but warps; these are appended as they end.
std::string encode_head(const LaunchTrace& launch);
std::string encode_warp(const WarpTrace& warp);
// Believes nothing: checks each length, counter and order. nullopt: `error` says what is wrong. A last warp that is not
// all there is left out, and `cut` is set.
std::optional<LaunchTrace> decode(std::span<const char> bytes, std::string* error);

}  // namespace bandsaw::soft::timing
