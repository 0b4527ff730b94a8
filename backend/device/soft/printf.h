// Kernel printf and assert as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

class LaunchServices;

// Formats as CUDA's device printf does: `arguments` are packed as vprintf gets them, each at its natural alignment
// (32-bit integers and characters 4 bytes, everything else 8); what a format asks for beyond them is 0. *count:
// arguments used. false: a string, which is a generic address of the lane, cannot be read. Text beyond kPrintfMax is
// cut.
inline constexpr size_t kPrintfMax = 64 * 1024;
bool format_printf(const WarpState& warp, uint32_t lane, LaunchServices& services, std::string_view format,
                   std::span<const std::byte> arguments, std::string* text, int32_t* count);

// The three texts are private copies. "file:line: function: block: [x,y,z], thread: [x,y,z] Assertion `message`
// failed.\n"
std::string format_assert(const WarpState& warp, uint32_t lane, const char* message, const char* file, uint32_t line,
                          const char* function);

}  // namespace bandsaw::soft
