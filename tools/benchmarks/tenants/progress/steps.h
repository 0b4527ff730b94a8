// What the tenants of tools/bench progress share: a program that does one thing in steps, and says when each began and
// ended.
//
// The program says "ready" after its warm-up. Then "go FILE" on stdin begins steps, one after the other, until "stop";
// FILE gets a line "BEGIN END" for each (nanoseconds of CLOCK_MONOTONIC), and "done COUNT" is the answer. Ends with
// stdin.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "../shares/tenant.h"

namespace progress {

struct Step {
  int64_t begin, end;
};

// Whether stdin has a line, or has ended.
inline bool told() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

inline void write_steps(const std::string& path, const std::vector<Step>& steps) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) {
    std::perror(path.c_str());
    std::exit(2);
  }
  for (const Step& each : steps)
    std::fprintf(file, "%lld %lld\n", static_cast<long long>(each.begin), static_cast<long long>(each.end));
  std::fclose(file);
}

// `step` returns when its work is done on the device; `pause`, if any, is called between two steps.
inline int serve(int warm_steps, const std::function<void()>& step, const std::function<void()>& pause = {}) {
  for (int i = 0; i < warm_steps; ++i) step();
  // Lines one at a time: what is buffered here is not seen by poll().
  std::setvbuf(stdin, nullptr, _IONBF, 0);
  std::ios::sync_with_stdio(true);
  std::puts("ready");
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.rfind("go ", 0) != 0) continue;
    std::vector<Step> steps;
    while (!told()) {
      const int64_t begin = now_ns();
      step();
      steps.push_back({begin, now_ns()});
      if (pause) pause();
    }
    write_steps(line.substr(3), steps);
    std::printf("done %zu\n", steps.size());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace progress
