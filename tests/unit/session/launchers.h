// A launcher for tests: it starts the test's runner as whoever the test is, in no root of its own.
#pragma once

#include <memory>
#include <string>

#include "backend/sandbox/launcher.h"

namespace bandsaw {

inline std::unique_ptr<Launcher> plain_launcher(const std::string& program = FAKE_RUNNER) {
  return std::move(Launcher::start({.mode = SandboxMode::kOff, .program = program}).value());
}

}  // namespace bandsaw
