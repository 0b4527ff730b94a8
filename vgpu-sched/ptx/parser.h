// Text to tree. Pure function of its input: no globals, any thread. Linear in the length of the text.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

struct ParseError : std::runtime_error {
  ParseError(uint32_t at_line, uint32_t at_column, const std::string& what_was_expected);
  uint32_t line, column;  // from 1
  std::string message;    // without the place; what() is "line:column: message"
};

inline constexpr int kMaxNesting = 64;  // of blocks, initialiser lists, operands and parentheses

// `text` may end in NUL bytes (fatbin payloads do). Throws ParseError; nothing else but std::bad_alloc. `complete`: the
// text declares all arrays whose elements it names, and these become addresses (indexed.h); else they stay.
Module parse(std::string_view text, bool complete = true);

}  // namespace bandsaw::ptx
