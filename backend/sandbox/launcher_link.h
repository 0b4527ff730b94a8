// What a session and its launcher say to each other: packets of a head, and texts that end with a zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bandsaw {

inline constexpr size_t kLauncherRequestMax = 128 << 10, kLauncherReplyMax = 8 << 10;

// In the environment of a runner on a GPU that another one is to be able to follow, with the same addresses.
inline constexpr const char* kReplaceableRunner = "BANDSAW_REPLACEABLE=1";

struct LauncherRequest {
  enum Kind : uint32_t { kLaunch = 1, kKill = 2, kNumber = 3 } kind;
  int32_t pid;      // kKill, kNumber
  uint32_t task;    // kLaunch: RunnerTask; a descriptor comes with it, and these texts: argument, GPU, MPS folder, and
  uint32_t number;  // NAME=value of the environment; the number that the descriptor gets
};

// The first says whether it works (texts: Measures::has and lacks, or the error).
struct LauncherReply {
  int32_t error;  // 0, or why not
  int32_t pid;    // kLaunch, kNumber
};

inline constexpr char kWantsMaps = 'm';  // before the first reply, alone: may its user namespace have users?

inline std::string to_packet(std::span<const std::byte> head, const std::vector<std::string_view>& texts) {
  std::string packet(reinterpret_cast<const char*>(head.data()), head.size());
  for (const std::string_view text : texts) {
    packet += text;
    packet += '\0';
  }
  return packet;
}

// What has no zero at its end is left out.
inline std::vector<std::string> texts_of(std::string_view tail) {
  std::vector<std::string> texts;
  for (size_t end = tail.find('\0'); end != tail.npos; end = tail.find('\0')) {
    texts.emplace_back(tail.substr(0, end));
    tail.remove_prefix(end + 1);
  }
  return texts;
}

}  // namespace bandsaw
