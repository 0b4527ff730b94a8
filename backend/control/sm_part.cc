#include "backend/control/sm_part.h"

#include <cerrno>
#include <charconv>

namespace bandsaw {
namespace {

constexpr uint32_t kMost = 1u << 16;

// A number at the beginning of `text`, which is taken away.
bool take_number(std::string_view* text, uint32_t least, uint32_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number < least || *number > kMost) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

bool take_sign(std::string_view* text, char sign) {
  if (!text->starts_with(sign)) return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

std::string to_text(const SmPart& part) {
  if (part.step == 0) return "";
  return fmt::format("{}:{}+{}", part.step, part.first, part.count ? std::to_string(part.count) : "");
}

Result<SmPart> parse_sm_part(std::string_view text) {
  SmPart part;
  if (text.empty()) return part;
  std::string_view left = text;
  const bool good = take_number(&left, 1, &part.step) && take_sign(&left, ':') && take_number(&left, 0, &part.first) &&
                    take_sign(&left, '+') && (left.empty() || take_number(&left, 1, &part.count)) && left.empty();
  if (!good) return Status::error(EINVAL, "'{}' is no part of a GPU's SMs", text.substr(0, 64));
  return part;
}

}  // namespace bandsaw
