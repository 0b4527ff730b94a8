#include "backend/runner/slicing/slicing_settings.h"

#include <charconv>

#include "backend/control/gate_link.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kLongestUs = 1'000'000'000, kMostBlocks = uint64_t{1} << 40;

bool read_number(std::string_view text, uint64_t least, uint64_t most, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && *number >= least && *number <= most;
}

bool read_variant(std::string_view text, VariantChoice* variant) {
  if (text == "auto") *variant = VariantChoice::kAuto;
  if (text == "sliced" || text == "slice") *variant = VariantChoice::kSliced;  // "slice": of earlier versions
  if (text == "persistent") *variant = VariantChoice::kPersistent;
  return text == "auto" || text == "sliced" || text == "slice" || text == "persistent";
}

bool read_one(std::string_view key, std::string_view value, SlicingSettings* settings) {
  uint64_t number = 0;
  if (key == "variant" || key == "form") return read_variant(value, &settings->variant);
  if (key == "enabled" && read_number(value, 0, 1, &number)) {
    settings->enabled = number != 0;
  } else if (key == "count" && read_number(value, 0, 1, &number)) {
    settings->count = number != 0;
  } else if (key == "drop_strict" && read_number(value, 0, 1, &number)) {
    settings->drop_strict = number != 0;
  } else if (key == "resize" && read_number(value, 0, 1, &number)) {
    settings->resize = number != 0;
  } else if (key == "await_copies" && read_number(value, 0, 1, &number)) {
    settings->await_copies = number != 0;
  } else if (key == "threshold_us" && read_number(value, 0, kLongestUs, &number)) {
    settings->threshold_ns = number * 1000;
  } else if (key == "in_flight" && read_number(value, 1, kGateDepthMax, &number)) {
    settings->in_flight = static_cast<uint32_t>(number);
  } else if (key == "timeout_ms" && read_number(value, 0, kLongestUs / 1000, &number)) {
    settings->timeout_ns = number * 1'000'000;
  } else if (key == "drop_us" && read_number(value, 0, kLongestUs, &number)) {
    settings->drop_ns = number * 1000;
  } else if (key == "take_us" && read_number(value, 0, kLongestUs, &number)) {
    settings->take_ns = number * 1000;
  } else if (key == "force_blocks" && read_number(value, 0, kMostBlocks, &number)) {
    settings->force_blocks = number;
  } else {
    return false;
  }
  return true;
}

}  // namespace

Status read_slicing_settings(std::string_view text, SlicingSettings* settings) {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const size_t equals = word.find('=');
    if (word.empty()) continue;
    if (equals == std::string_view::npos || !read_one(word.substr(0, equals), word.substr(equals + 1), settings)) {
      return Status::error(EINVAL, "slices: '{}' is not understood", word);
    }
  }
  return {};
}

}  // namespace bandsaw::runner
