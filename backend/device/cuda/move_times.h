// What the processor's time goes to while chunks change places, for the log.
#pragma once

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace bandsaw::cuda {

// Not thread-safe.
class MoveTimes {
 public:
  enum What { kWaits, kMakes, kMapsDevice, kMapsHost, kUnmapsDevice, kUnmapsHost, kReleases, kIssues, kWhats };

  // What `call` returns.
  template <typename Call>
  auto time(What what, Call&& call) {
    const auto begin = std::chrono::steady_clock::now();
    auto result = std::forward<Call>(call)();
    add(what, begin);
    return result;
  }
  // It has gone on since.
  void add(What what, std::chrono::steady_clock::time_point begin) {
    spent_[what] += std::chrono::steady_clock::now() - begin;
    ++times_[what];
  }
  std::string text() const {
    static constexpr std::array<const char*, kWhats> kNames{"waits for copies", "makes memory",  "maps on device",
                                                            "maps in host",     "unmaps device", "unmaps host",
                                                            "releases memory",  "issues copies"};
    std::string said;
    for (size_t what = 0; what < kWhats; ++what) {
      if (times_[what] == 0) continue;
      const std::chrono::duration<double, std::milli> spent = spent_[what];
      said += fmt::format("{}{} {:.2f} ms in {}", said.empty() ? "" : ", ", kNames[what], spent.count(), times_[what]);
    }
    return said;
  }

 private:
  std::array<std::chrono::nanoseconds, kWhats> spent_{};
  std::array<uint32_t, kWhats> times_{};
};

}  // namespace bandsaw::cuda
