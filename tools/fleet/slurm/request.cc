#include "tools/fleet/slurm/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

namespace bandsaw::slurm {
namespace {

// Words of a job. Priorities, reserves and SMs of its own are the administrator's to give.
constexpr std::array<const char*, 6> kKnown = {"memory", "compute", "copy", "cap", "latency-us", "sharing"};
constexpr const char* kCount = "count";
constexpr size_t kTextMost = 512;

struct Word {
  std::string name, value;
};

Result<std::vector<Word>> split(std::string_view text) {
  if (text.size() > kTextMost) return Status::error(EINVAL, "more than {} characters", kTextMost);
  std::vector<Word> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals + 1 == word.size()) {
      return Status::error(EINVAL, "'{}' is not WORD=VALUE", word.substr(0, 64));
    }
    words.push_back({std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))});
  }
  return words;
}

Status unknown_word(const std::string& name) {
  const std::string nearest = nearest_name(name, {kKnown.begin(), kKnown.end()});
  return Status::error(EINVAL, "'{}' is not known; {}", name.substr(0, 64),
                       nearest.empty() ? fmt::format("there are {}", fmt::join(kKnown, ", "))
                                       : fmt::format("did you mean '{}'?", nearest));
}

Status take_count(const std::string& value, uint32_t* count) {
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), *count);
  const bool whole = code == std::errc() && end == value.data() + value.size();
  return whole && *count >= 1 && *count <= kCountMost
             ? Status()
             : Status::error(EINVAL, "'{}' virtual GPUs; a job has 1 to {} on a node", value.substr(0, 64), kCountMost);
}

}  // namespace

Result<Request> parse_request(std::string_view text, bool admitted) {
  const auto words = split(text);
  if (!words.ok()) return words.status();
  Request request;
  ShareTexts shares;
  for (const auto& [name, value] : words.value()) {
    if (admitted && name == kCount) {
      if (Status status = take_count(value, &request.count); !status.ok()) return status;
      continue;
    }
    if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) return unknown_word(name);
    shares.emplace_back(name == "latency-us" ? "latency_us" : name, value);
  }
  const auto object = read_share_texts(shares);
  if (!object.ok()) return object.status();
  if (Status status = from_json(object.value(), false, &request.each); !status.ok()) return status;
  if (request.each.memory < kMemoryMin) {
    return Status::error(EINVAL, "memory of {}: give at least {}, as in memory=8G", format_size(request.each.memory),
                         format_size(kMemoryMin));
  }
  if (admitted && request.count == 0) return Status::error(EINVAL, "no count");
  return request;
}

std::string to_text(const Request& request) {
  const VgpuSpec& each = request.each;
  std::string text = fmt::format("memory={},compute={},copy={},cap={},latency-us={},sharing={}", each.memory,
                                 each.compute, each.copy, each.cap, each.latency_us, to_text(each.sharing));
  return request.count ? fmt::format("{}={},{}", kCount, request.count, text) : text;
}

}  // namespace bandsaw::slurm
