#include "backend/control/object_limits.h"

#include <fmt/ranges.h>

#include <charconv>

namespace bandsaw {

Limits effective_limits(const Limits& configured, const OwnLimits& own) {
  Limits limits = configured;
  for (size_t i = 0; i < limits.size(); ++i) limits[i] = own[i].value_or(configured[i]);
  return limits;
}

Result<Limited> find_limited(std::string_view name) {
  for (size_t i = 0; i < kLimitedCount; ++i) {
    if (kLimitedNames[i] == name) return static_cast<Limited>(i);
  }
  return Status::error(EINVAL, "no limit '{}'; there are {}", name.substr(0, 64), fmt::join(kLimitedNames, ", "));
}

std::string to_text(const Limits& limits, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : " ", kLimitedNames[i], limits[i]);
  }
  return text;
}

Status read_limits(std::string_view text, Limits* limits) {
  Limits read = *limits;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    const size_t equals = std::min(word.find('='), word.size());
    const auto kind = find_limited(word.substr(0, equals));
    if (!kind.ok()) return kind.status();
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    uint32_t number = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || code != std::errc() || end != value.data() + value.size() || number > kLimitMax) {
      return Status::error(EINVAL, "the limit '{}' must be a whole number up to {}", word.substr(0, 64), kLimitMax);
    }
    read[static_cast<size_t>(kind.value())] = number;
  }
  *limits = read;
  return {};
}

}  // namespace bandsaw
