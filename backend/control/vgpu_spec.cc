#include "backend/control/vgpu_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "backend/control/paths.h"
#include "memory/base/json.h"

namespace bandsaw {
namespace {

Status take_text(const nlohmann::json& value, const std::string& key, std::string* out) {
  if (!value.is_string()) return Status::error(EINVAL, "'{}' must be a text", key);
  *out = value.get<std::string>();
  if (out->size() > 255) return Status::error(EINVAL, "'{}' is longer than 255 bytes", key);
  return {};
}

Status take_number(const nlohmann::json& value, const std::string& key, uint64_t limit, uint64_t* out) {
  if (!value.is_number_unsigned() && !(value.is_number_integer() && value.get<int64_t>() >= 0)) {
    return Status::error(EINVAL, "'{}' must be a whole number, 0 or more", key);
  }
  *out = value.get<uint64_t>();
  if (*out > limit) return Status::error(EINVAL, "'{}' is {}, the largest allowed is {}", key, *out, limit);
  return {};
}

Status take_flag(const nlohmann::json& value, const std::string& key, bool* out) {
  if (!value.is_boolean()) return Status::error(EINVAL, "'{}' must be true or false", key);
  *out = value.get<bool>();
  return {};
}

Status take_small(const nlohmann::json& value, const std::string& key, uint32_t limit, uint32_t* out) {
  uint64_t wide = 0;
  Status status = take_number(value, key, limit, &wide);
  if (status.ok()) *out = static_cast<uint32_t>(wide);
  return status;
}

Status take_percent(const nlohmann::json& value, const std::string& key, uint32_t least, uint32_t* out) {
  if (!value.is_number_integer()) return Status::error(EINVAL, "'{}' must be a whole number, in percent", key);
  const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX;
  const int64_t percent = huge ? INT64_MAX : value.get<int64_t>();
  if (percent < static_cast<int64_t>(least) || percent > 100) {
    return Status::error(EINVAL, "'{}' is {} %, and must be {} to 100 %", key, percent, least);
  }
  *out = static_cast<uint32_t>(percent);
  return {};
}

// 0 was "no promise", which is the least weight.
Status take_share(const nlohmann::json& value, const std::string& key, bool stored, uint32_t* out) {
  Status status = take_percent(value, key, stored ? 0 : 1, out);
  if (status.ok()) *out = std::max(*out, 1u);
  return status;
}

Status take_priority(const nlohmann::json& value, int32_t* out) {
  const bool small = value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX);
  const int64_t priority = small ? value.get<int64_t>() : INT64_MAX;
  if (priority < kPriorityMin || priority > kPriorityMax) {
    return Status::error(EINVAL, "'priority' is {}, and must be a whole number from {} to {}",
                         json_text(value).substr(0, 32), kPriorityMin, kPriorityMax);
  }
  *out = static_cast<int32_t>(priority);
  return {};
}

Status take_latency(const nlohmann::json& value, uint32_t* out) {
  uint64_t wide = 0;
  if (Status status = take_number(value, "latency_us", UINT64_MAX, &wide); !status.ok()) return status;
  if (wide != 0 && (wide < kLatencyLeastMps || wide > kLatencyMax)) {
    return Status::error(EINVAL, "'latency_us' is {}, and must be {} to {} microseconds, or 0 for no bound", wide,
                         kLatencyLeastMps, kLatencyMax);
  }
  *out = static_cast<uint32_t>(wide);
  return {};
}

Status take_sharing(const nlohmann::json& value, Sharing* out) {
  std::string text;
  if (Status status = take_text(value, "sharing", &text); !status.ok()) return status;
  const auto sharing = parse_sharing(text);
  if (sharing.ok()) *out = sharing.value();
  return sharing.status();
}

// {"streams": 1000}; null: as the configuration says. Others stay.
Status take_limits(const nlohmann::json& value, OwnLimits* limits) {
  if (!value.is_object()) return Status::error(EINVAL, "'limits' must be an object");
  for (const auto& [name, most] : value.items()) {
    const auto kind = find_limited(name);
    if (!kind.ok()) return kind.status();
    std::optional<uint32_t>& own = (*limits)[static_cast<size_t>(kind.value())];
    uint32_t number = 0;
    if (most.is_null()) {
      own.reset();
    } else if (Status status = take_small(most, name, kLimitMax, &number); status.ok()) {
      own = number;
    } else {
      return status;
    }
  }
  return {};
}

nlohmann::json to_json(const OwnLimits& limits) {
  auto object = nlohmann::json::object();
  for (size_t i = 0; i < kLimitedCount; ++i) {
    if (limits[i]) object[kLimitedNames[i]] = *limits[i];
  }
  return object;
}

Status take_host_memory(const nlohmann::json& value, uint64_t* out) {
  uint64_t bytes = 0;
  if (Status status = take_number(value, "host_memory", uint64_t{1} << 56, &bytes); !status.ok()) return status;
  if (bytes != 0 && bytes < kHostMemoryMin) {
    return Status::error(EINVAL, "host memory of {} is below the least, {}", format_size(bytes),
                         format_size(kHostMemoryMin));
  }
  *out = bytes;
  return {};
}

Status take_group(const nlohmann::json& value, std::string* out) {
  std::string text;
  if (Status status = take_text(value, "group", &text); !status.ok()) return status;
  if (!text.empty() && (text == kNoGroup || !valid_name(text))) {
    return Status::error(EINVAL, "'{}' is no name of a group: {}; '{}' is for who has none", text.substr(0, 80),
                         kNameRule, kNoGroup);
  }
  *out = std::move(text);
  return {};
}

// null: as configured.
Status take_idle_suspend(const nlohmann::json& value, std::optional<uint32_t>* out) {
  uint32_t seconds = 0;
  if (value.is_null()) {
    out->reset();
  } else if (Status status = take_small(value, "idle_suspend_s", kIdleSuspendMost, &seconds); status.ok()) {
    *out = seconds;
  } else {
    return status;
  }
  return {};
}

Status take_field(const std::string& key, const nlohmann::json& value, bool stored, VgpuSpec* spec) {
  if (key == "memory") return take_number(value, key, uint64_t{1} << 56, &spec->memory);
  if (key == "resident") return take_number(value, key, uint64_t{1} << 56, &spec->resident);
  if (key == "compute") return take_share(value, key, stored, &spec->compute);
  if (key == "copy") return take_share(value, key, stored, &spec->copy);
  if (key == "cap") return take_percent(value, key, 1, &spec->cap);
  if (key == "reserve") return take_percent(value, key, 0, &spec->reserve);
  if (key == "priority") return take_priority(value, &spec->priority);
  if (key == "latency_us") return take_latency(value, &spec->latency_us);
  if (key == "kernel_deadline_ms") return take_small(value, key, kKernelDeadlineMax, &spec->kernel_deadline_ms);
  if (key == "sharing") return take_sharing(value, &spec->sharing);
  if (key == "group") return take_group(value, &spec->group);
  if (key == "guard") return take_flag(value, key, &spec->guard);
  if (key == "allow_machine_code") return take_flag(value, key, &spec->allow_machine_code);
  if (key == "clear_shared") return take_flag(value, key, &spec->clear_shared);
  if (key == "sms") return take_small(value, key, 1u << 16, &spec->sms);
  if (key == "host_memory") return take_host_memory(value, &spec->host_memory);
  if (key == "idle_suspend_s") return take_idle_suspend(value, &spec->idle_suspend_s);
  if (key == "limits") return take_limits(value, &spec->limits);
  if (key == "owner") return take_text(value, key, &spec->owner);
  if (key == "direct_mode") return take_text(value, key, &spec->direct_mode);
  if (key == "direct_group") return take_text(value, key, &spec->direct_group);
  if (stored && key == "name") return take_text(value, key, &spec->name);
  if (stored && key == "device") return take_text(value, key, &spec->device);
  if (stored && key == "device_uuid") return take_text(value, key, &spec->device_uuid);
  if (stored && key == "domain") return take_text(value, key, &spec->domain);
  if (stored && key == "suspended") return take_flag(value, key, &spec->suspended);
  if (stored && key == "suspended_bytes") return take_number(value, key, uint64_t{1} << 56, &spec->suspended_bytes);
  if (stored && key == "index") return take_small(value, key, 1u << 16, &spec->index);
  return Status::error(EINVAL, "'{}' is not a field that can be set", key.substr(0, 64));
}

constexpr std::array<const char*, 10> kShareNames = {"memory",   "compute",    "copy",    "cap",   "reserve",
                                                     "priority", "latency_us", "sharing", "group", "sms"};

// The shortest text that parse_size() reads back as these bytes.
std::string exact_size(uint64_t bytes) {
  std::string unit;
  for (const char* larger : {"K", "M", "G", "T"}) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = larger;
  }
  return std::to_string(bytes) + unit;
}

}  // namespace

std::string guard_text(const VgpuSpec& spec) {
  std::string text;
  for (const auto& [set, word] : {std::pair{spec.guard, "guard"}, std::pair{spec.allow_machine_code, "machine-code"},
                                  std::pair{spec.clear_shared, "clear-shared"}}) {
    if (set) text.append(text.empty() ? "" : ",").append(word);
  }
  return text;
}

nlohmann::json to_json(const VgpuSpec& spec) {
  return {{"name", spec.name},
          {"device", spec.device},
          {"device_uuid", spec.device_uuid},
          {"memory", spec.memory},
          {"resident", spec.resident},
          {"compute", spec.compute},
          {"copy", spec.copy},
          {"cap", spec.cap},
          {"reserve", spec.reserve},
          {"priority", spec.priority},
          {"latency_us", spec.latency_us},
          {"kernel_deadline_ms", spec.kernel_deadline_ms},
          {"sharing", to_text(spec.sharing)},
          {"group", spec.group},
          {"guard", spec.guard},
          {"allow_machine_code", spec.allow_machine_code},
          {"clear_shared", spec.clear_shared},
          {"sms", spec.sms},
          {"owner", spec.owner},
          {"idle_suspend_s", spec.idle_suspend_s ? nlohmann::json(*spec.idle_suspend_s) : nlohmann::json()},
          {"host_memory", spec.host_memory},
          {"limits", to_json(spec.limits)},
          {"direct_mode", spec.direct_mode},
          {"direct_group", spec.direct_group},
          {"domain", spec.domain},
          {"suspended", spec.suspended},
          {"suspended_bytes", spec.suspended_bytes},
          {"index", spec.index}};
}

Status from_json(const nlohmann::json& object, bool stored, VgpuSpec* spec) {
  if (!object.is_object()) return Status::error(EINVAL, "not a JSON object");
  VgpuSpec changed = *spec;
  for (const auto& [key, value] : object.items()) {
    if (Status status = take_field(key, value, stored, &changed); !status.ok()) return status;
  }
  *spec = std::move(changed);
  return {};
}

ShareTexts share_texts(const nlohmann::json& spec) {
  ShareTexts texts;
  for (const char* name : kShareNames) {
    if (!spec.contains(name)) continue;
    if (std::string_view(name) == "group" && spec[name] == "") continue;
    const bool memory = std::string_view(name) == "memory";
    const auto text = [&value = spec[name]] { return value.is_string() ? value.get<std::string>() : json_text(value); };
    texts.emplace_back(name, memory ? exact_size(spec[name].get<uint64_t>()) : text());
  }
  return texts;
}

Result<nlohmann::json> read_share_texts(const ShareTexts& texts) {
  auto shares = nlohmann::json::object();
  for (const auto& [name, text] : texts) {
    if (std::find(kShareNames.begin(), kShareNames.end(), name) == kShareNames.end()) {
      return Status::error(EINVAL, "'{}' is not a share; there are {}", name.substr(0, 64),
                           fmt::join(kShareNames, ", "));
    }
    if (shares.contains(name)) return Status::error(EINVAL, "'{}' is given twice", name);
    if (name == "memory") {
      const auto bytes = parse_size(text);
      if (!bytes.ok()) return bytes.status();
      shares[name] = bytes.value();
      continue;
    }
    if (name == "sharing") {
      const auto sharing = parse_sharing(text);
      if (!sharing.ok()) return sharing.status();
      shares[name] = to_text(sharing.value());
      continue;
    }
    if (name == "group") {
      shares[name] = text == kNoGroup ? "" : text;
      continue;
    }
    int64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end != text.data() + text.size()) {
      return Status::error(EINVAL, "'{}' is '{}', and must be a whole number", name, text.substr(0, 64));
    }
    shares[name] = number;
  }
  return shares;
}

Result<uint64_t> parse_size(std::string_view text) {
  const std::string whole(text);
  const auto bad = [&whole] {
    return Status::error(EINVAL, "'{}' is not a size; write for example 512M, 8G or a number of bytes",
                         whole.substr(0, 64));
  };
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (code != std::errc() || !std::isfinite(number) || number < 0) return bad();
  std::string unit(end, text.data() + text.size());
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::toupper(c); });
  if (unit.ends_with("IB")) unit.resize(unit.size() - 2);
  if (unit.size() > 1 && unit.ends_with("B")) unit.pop_back();
  static constexpr std::string_view kUnits = "BKMGTP";
  const size_t power = unit.empty() ? 0 : kUnits.find(unit);
  if (unit.size() > 1 || power == std::string_view::npos) return bad();
  const double bytes = std::ldexp(number, static_cast<int>(10 * power));
  if (bytes > std::ldexp(1.0, 56)) return bad();
  return static_cast<uint64_t>(bytes);
}

std::string format_size(uint64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string best;
  size_t best_distance = 3;
  for (const std::string& candidate : names) {
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t change = diagonal + (name[i - 1] != candidate[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace bandsaw
