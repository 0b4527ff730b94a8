// Parts of a test program, each in a process of its own: one that fails leaves the others their turn. To be called
// before the first call of CUDA.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

#include "check.h"

struct Part {
  const char* name;
  void (*run)();
};

inline int run_parts(std::initializer_list<Part> parts) {
  bool good = true;
  for (const Part& part : parts) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      part.run();
      std::exit(0);
    }
    int status = -1;
    const bool ok = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    if (!ok) std::printf("%s: failed, status %#x\n", part.name, static_cast<unsigned>(status));
    good = good && ok;
  }
  return good ? passed() : 1;
}
