#include "backend/device/soft/timing/trace.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace bandsaw::soft::timing {
namespace {

constexpr char kMagic[8] = {'B', 'S', 'W', 'T', 'R', 'C', '0', '2'};
constexpr uint32_t kMostName = 4096, kMostOperands = 4096;
constexpr uint32_t kMostGrid = 0x7fffffff, kMostBlock = 1024, kMostSms = 1 << 16;

void put(std::string* to, const void* data, size_t bytes) { to->append(static_cast<const char*>(data), bytes); }
void put(std::string* to, uint32_t value) { put(to, &value, sizeof value); }
void put(std::string* to, uint64_t value) { put(to, &value, sizeof value); }

void put(std::string* to, const std::vector<uint32_t>& words) {
  put(to, static_cast<uint32_t>(words.size()));
  put(to, words.data(), words.size() * sizeof(uint32_t));
}

void put(std::string* to, const Instruction& one) {
  put(to, static_cast<uint32_t>(one.kind) | uint32_t{one.ends_stretch} << 8 | uint32_t{one.global_load} << 9);
  put(to, one.barrier);
  put(to, one.barrier_threads);
  put(to, static_cast<uint32_t>(one.target));
  put(to, one.line);
  put(to, one.reads);
  put(to, one.writes);
}

class Reader {
 public:
  explicit Reader(std::span<const char> bytes) : bytes_(bytes) {}
  bool good() const { return good_; }
  size_t left() const { return bytes_.size(); }
  void fail() { good_ = false; }

  bool take(void* to, size_t bytes) {
    if (!good_ || bytes > bytes_.size()) return good_ = false;
    if (bytes) std::memcpy(to, bytes_.data(), bytes);
    bytes_ = bytes_.subspan(bytes);
    return true;
  }
  template <class T>
  T number(T most) {
    T value{};
    take(&value, sizeof value);
    if (value > most) good_ = false;
    return good_ ? value : T{};
  }
  std::vector<uint32_t> words(size_t most) {
    const uint32_t count = number<uint32_t>(static_cast<uint32_t>(std::min<size_t>(most, UINT32_MAX)));
    if (!good_ || count > left() / sizeof(uint32_t)) {
      good_ = false;
      return {};
    }
    std::vector<uint32_t> found(count);
    take(found.data(), count * sizeof(uint32_t));
    return found;
  }

 private:
  std::span<const char> bytes_;
  bool good_ = true;
};

Instruction read_instruction(Reader* in, uint32_t count, uint32_t registers) {
  Instruction one;
  const auto flags = in->number<uint32_t>(0x3ff);
  if ((flags & 0xff) >= kKinds) in->fail();
  one.kind = in->good() ? static_cast<Kind>(flags & 0xff) : Kind::kSimple;
  one.ends_stretch = flags >> 8 & 1;
  one.global_load = flags >> 9 & 1;
  one.barrier = in->number<uint32_t>(UINT32_MAX);
  one.barrier_threads = in->number<uint32_t>(UINT32_MAX);
  const auto target = static_cast<int32_t>(in->number<uint32_t>(UINT32_MAX));
  if (target < -1 || target >= static_cast<int64_t>(count)) in->fail();
  one.target = target;
  one.line = in->number<uint32_t>(UINT32_MAX);
  one.reads = in->words(kMostOperands);
  one.writes = in->words(kMostOperands);
  for (const auto* list : {&one.reads, &one.writes})
    if (std::any_of(list->begin(), list->end(), [&](uint32_t r) { return r >= registers; })) in->fail();
  return one;
}

void read_head(Reader* in, LaunchTrace* launch) {
  char magic[sizeof kMagic] = {};
  in->take(magic, sizeof magic);
  if (std::memcmp(magic, kMagic, sizeof magic) != 0) return in->fail();
  launch->kernel.resize(in->number<uint32_t>(kMostName));
  in->take(launch->kernel.data(), launch->kernel.size());
  launch->launch = in->number<uint64_t>(UINT64_MAX);
  for (uint32_t& extent : launch->grid) extent = in->number<uint32_t>(kMostGrid);
  for (uint32_t& extent : launch->block) extent = in->number<uint32_t>(kMostBlock);
  // What wraps at 64 bits is no grid of CUDA's; two of the extents are 16 bits long there.
  if (launch->grid[1] > 65535 || launch->grid[2] > 65535) in->fail();
  const uint64_t threads = uint64_t{launch->block[0]} * launch->block[1] * launch->block[2];
  if (threads == 0 || threads > kMostBlock || launch->blocks() == 0) in->fail();
  launch->shared_bytes = in->number<uint32_t>(1 << 20);
  launch->registers = in->number<uint32_t>(1024);
  launch->part.total_sms = in->number<uint32_t>(kMostSms);
  launch->part.sms = in->number<uint32_t>(launch->part.total_sms);
  if (launch->part.sms == 0) in->fail();
  launch->code.registers = in->number<uint32_t>(kMostRegisters);
  const auto count = in->number<uint32_t>(kMostInstructions);
  for (uint32_t i = 0; i < count && in->good(); ++i)
    launch->code.instructions.push_back(read_instruction(in, count, launch->code.registers));
  if (in->good() && (count == 0 || !launch->code.instructions.back().ends_stretch)) in->fail();
}

bool has_access(Kind kind) { return kind == Kind::kLoad || kind == Kind::kStore || kind == Kind::kAtomic; }

// How many accesses follow a stretch's beginning at `counter`.
size_t accesses_from(const Code& code, uint32_t counter) {
  size_t found = 0;
  for (;; ++counter) {
    found += has_access(code.instructions[counter].kind);
    if (code.instructions[counter].ends_stretch) return found;
  }
}

// Words behind the event at `at`, or nullopt if it is none.
std::optional<size_t> event_length(const std::vector<uint32_t>& words, size_t at) {
  const uint32_t word = words[at];
  switch (word & kEventMask) {
    case kLines: {
      const size_t length = 2 * size_t{lanes_of(word)};
      if (lanes_of(word) > kMostLanes || words.size() - at - 1 < length) return std::nullopt;
      return length;
    }
    case kBanks:
      return counter_of(word) <= kMostTurns ? std::optional<size_t>(0) : std::nullopt;
    default:
      return std::nullopt;
  }
}

// Whole stretches with all of their accesses; what follows the last of them is cut off where the warp was cut.
bool check_words(const Code& code, WarpTrace* warp) {
  size_t at = 0, whole = 0;
  bool complete = true;
  while (at < warp->words.size() && complete) {
    const uint32_t word = warp->words[at];
    if ((word & kEventMask) != kStretch || lanes_of(word) > kMostLanes ||
        counter_of(word) >= code.instructions.size()) {
      return false;
    }
    size_t wanted = accesses_from(code, counter_of(word));
    for (++at; wanted != 0; --wanted) {
      if (at >= warp->words.size()) {
        complete = false;
        break;
      }
      const auto length = event_length(warp->words, at);
      if (!length) return false;
      at += 1 + *length;
    }
    if (complete) whole = at;
  }
  if (!complete && !warp->cut) return false;
  warp->words.resize(whole);
  return true;
}

}  // namespace

std::string encode_head(const LaunchTrace& launch) {
  std::string out(kMagic, sizeof kMagic);
  const std::string name = launch.kernel.substr(0, kMostName);
  put(&out, static_cast<uint32_t>(name.size()));
  out += name;
  put(&out, launch.launch);
  for (const uint32_t extent : launch.grid) put(&out, extent);
  for (const uint32_t extent : launch.block) put(&out, extent);
  put(&out, launch.shared_bytes);
  put(&out, launch.registers);
  put(&out, launch.part.total_sms);
  put(&out, launch.part.sms);
  put(&out, launch.code.registers);
  put(&out, static_cast<uint32_t>(launch.code.instructions.size()));
  for (const Instruction& one : launch.code.instructions) put(&out, one);
  return out;
}

std::string encode_warp(const WarpTrace& warp) {
  std::string out;
  put(&out, warp.block);
  put(&out, warp.warp);
  put(&out, uint32_t{warp.cut});
  put(&out, warp.words);
  return out;
}

std::optional<LaunchTrace> decode(std::span<const char> bytes, std::string* error) {
  LaunchTrace launch;
  Reader in(bytes);
  read_head(&in, &launch);
  if (!in.good()) {
    *error = "not a trace of a kernel";
    return std::nullopt;
  }
  while (in.left() != 0) {
    WarpTrace warp;
    warp.block = in.number<uint64_t>(UINT64_MAX);
    warp.warp = in.number<uint32_t>(UINT32_MAX);
    warp.cut = in.number<uint32_t>(UINT32_MAX) != 0;
    warp.words = in.words(UINT32_MAX);
    if (!in.good()) {
      launch.cut = true;  // whoever wrote it was killed
      break;
    }
    if (warp.block >= launch.blocks() || !launch.part.has(warp.block) || warp.warp >= launch.block_warps() ||
        !check_words(launch.code, &warp)) {
      *error = "a warp of kernel " + launch.kernel + " that cannot be";
      return std::nullopt;
    }
    launch.cut = launch.cut || warp.cut;
    launch.warps.push_back(std::move(warp));
  }
  const auto place = [](const WarpTrace& warp) { return std::tuple(warp.block, warp.warp); };
  std::sort(launch.warps.begin(), launch.warps.end(),
            [&](const WarpTrace& a, const WarpTrace& b) { return place(a) < place(b); });
  const auto twice = std::adjacent_find(launch.warps.begin(), launch.warps.end(),
                                        [&](const WarpTrace& a, const WarpTrace& b) { return place(a) == place(b); });
  if (twice != launch.warps.end()) {
    *error = "a warp of kernel " + launch.kernel + " twice";
    return std::nullopt;
  }
  return launch;
}

}  // namespace bandsaw::soft::timing
