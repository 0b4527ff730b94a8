// Lines of the log about one virtual GPU or device: where stderr is systemd's journal, they have the fields VGPU and
// DEVICE.
#pragma once

#include <string_view>

#include "memory/base/log.h"

namespace bandsaw::log {

struct About {
  std::string_view vgpu = {};    // empty: about none
  std::string_view device = {};  // empty: not said
  bool begins = true;            // the text begins with the virtual GPU's name
};

// As write() of log.h.
void write(Level level, const About& about, fmt::string_view format, fmt::format_args arguments) noexcept;

template <typename... Args>
void info(const About& about, fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kInfo, about, format, fmt::make_format_args(arguments...));
}
template <typename... Args>
void warn(const About& about, fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kWarn, about, format, fmt::make_format_args(arguments...));
}
template <typename... Args>
void error(const About& about, fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kError, about, format, fmt::make_format_args(arguments...));
}

}  // namespace bandsaw::log
