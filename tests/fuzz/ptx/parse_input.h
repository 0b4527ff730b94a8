// What both targets begin with: most inputs are no PTX.
#pragma once

#include <optional>

#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::ptx {

inline std::optional<Module> parse_input(const uint8_t* data, size_t size) {
  try {
    return parse({reinterpret_cast<const char*>(data), size});
  } catch (const ParseError&) {
    return std::nullopt;
  }
}

}  // namespace bandsaw::ptx
