#include "backend/vgpud/history.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "memory/base/log.h"
#include "memory/base/replace_file.h"

namespace bandsaw {
namespace {

using nlohmann::json;

constexpr int64_t kHour = 3600, kKept = kHistoryHours * kHour;
constexpr size_t kHoursMost = 20'000;          // of all virtual GPUs; the oldest go first
constexpr double kLongestStep = 120;           // seconds; longer ones are a machine that slept
constexpr int64_t kBelieved = 7 * 24 * kHour;  // seconds; a clock that has gone on for longer may be wrong
constexpr int kVersion = 1;

int64_t hour_of(int64_t now_s) { return now_s - now_s % kHour; }

uint64_t counter(const json& view, const json::json_pointer& path) {
  return view.contains(path) && view[path].is_number_unsigned() ? view[path].get<uint64_t>() : 0;
}

double share(const json& view, const char* name) {
  return view.contains(name) && view[name].is_number() ? view[name].get<double>() / 100 : 0;
}

uint64_t growth(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }

json to_json(const HistoryHour& hour) {
  return {{"observed_s", hour.observed_s},
          {"compute_s", hour.compute_s},
          {"copy_s", hour.copy_s},
          {"promised_compute_s", hour.promised_compute_s},
          {"promised_copy_s", hour.promised_copy_s},
          {"memory_byte_s", hour.memory_byte_s},
          {"promised_memory_byte_s", hour.promised_memory_byte_s},
          {"memory_most", hour.memory_most},
          {"launches", hour.launches}};
}

HistoryHour hour_from(const json& object) {
  return {.observed_s = object.at("observed_s"),
          .compute_s = object.at("compute_s"),
          .copy_s = object.at("copy_s"),
          .promised_compute_s = object.at("promised_compute_s"),
          .promised_copy_s = object.at("promised_copy_s"),
          .memory_byte_s = object.at("memory_byte_s"),
          .promised_memory_byte_s = object.at("promised_memory_byte_s"),
          .memory_most = object.at("memory_most"),
          .launches = object.at("launches")};
}

}  // namespace

void HistoryHour::add(const HistoryHour& other) {
  observed_s += other.observed_s;
  compute_s += other.compute_s;
  copy_s += other.copy_s;
  promised_compute_s += other.promised_compute_s;
  promised_copy_s += other.promised_copy_s;
  memory_byte_s += other.memory_byte_s;
  promised_memory_byte_s += other.promised_memory_byte_s;
  memory_most = std::max(memory_most, other.memory_most);
  launches += other.launches;
}

History History::open(const std::string& directory) {
  History history(directory);
  if (Status status = history.load(); !status.ok()) {
    const std::string aside = history.path() + ".damaged";
    std::rename(history.path().c_str(), aside.c_str());
    log::warn("{}: {}; it is now {}, and reports begin anew", history.path(), status.message(), aside);
    return History(directory);
  }
  return history;
}

Status History::load() {
  std::ifstream file(path());
  if (!file) return {};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const json content = parse_json(text);
  try {
    if (content.at("version") != kVersion) return Status::error(EINVAL, "it is of another version");
    for (const json& row : content.at("hours")) {
      hours_[{row.at("vgpu"), row.at("hour").get<int64_t>()}] = hour_from(row);
    }
    for (const auto& [name, row] : content.at("seen").items()) {
      seen_[name] = {.session = row.at("session"),
                     .compute_ns = row.at("compute_ns"),
                     .copy_ns = row.at("copy_ns"),
                     .launches = row.at("launches")};
    }
  } catch (const json::exception&) {
    return Status::error(EINVAL, "it cannot be understood");
  }
  return {};
}

void History::sample(const json& view, int64_t now_s, int64_t monotonic_ns) {
  static const json::json_pointer session("/live/pid"), compute("/live/usage/compute_ns"), copy("/live/usage/copy_ns"),
      used_compute("/used/compute_ns"), used_copy("/used/copy_ns"), launches("/live/usage/launches"),
      memory_used("/live/memory_used"), memory("/memory");
  const std::string name = view.value("name", "");
  Seen& seen = seen_[name];
  HistoryHour step;
  if (seen.at_ns != 0) {
    step.observed_s = std::clamp(static_cast<double>(monotonic_ns - seen.at_ns) * 1e-9, 0.0, kLongestStep);
  }
  step.promised_compute_s = seen.compute * step.observed_s;
  step.promised_copy_s = 2 * seen.copy * step.observed_s;
  step.promised_memory_byte_s = static_cast<double>(seen.memory) * step.observed_s;
  Seen now = seen;
  now.at_ns = monotonic_ns;
  now.compute = share(view, "compute");
  now.copy = share(view, "copy");
  now.memory = counter(view, memory);
  if (view.value("live", json()).is_object()) {
    now.session = static_cast<int64_t>(counter(view, session));
    now.compute_ns = counter(view, compute);
    now.copy_ns = counter(view, copy);
    now.used_compute_ns = counter(view, used_compute);
    now.used_copy_ns = counter(view, used_copy);
    now.launches = counter(view, launches);
    const bool went_on = seen.session != 0 && seen.at_ns == 0;  // while no vgpud was there to account for it
    if (now.session != seen.session) seen.compute_ns = seen.copy_ns = seen.launches = 0;  // it counts from 0
    const uint64_t compute_ns =
        went_on ? growth(seen.compute_ns, now.compute_ns) : growth(seen.used_compute_ns, now.used_compute_ns);
    const uint64_t copy_ns = went_on ? growth(seen.copy_ns, now.copy_ns) : growth(seen.used_copy_ns, now.used_copy_ns);
    step.compute_s = static_cast<double>(compute_ns) * 1e-9;
    step.copy_s = static_cast<double>(copy_ns) * 1e-9;
    step.launches = growth(seen.launches, now.launches);
    step.memory_most = counter(view, memory_used);
    step.memory_byte_s = static_cast<double>(step.memory_most) * step.observed_s;
  }
  seen = now;
  hours_[{name, hour_of(now_s)}].add(step);
}

json History::report(const std::string& name, int64_t from_s, int64_t now_s) const {
  HistoryHour total;
  json rows = json::array();
  for (auto at = hours_.lower_bound({name, from_s - kHour + 1}); at != hours_.end() && at->first.first == name; ++at) {
    if (at->first.second > now_s) break;  // by a clock that was ahead
    json row = to_json(at->second);
    row["hour"] = at->first.second;
    rows.push_back(std::move(row));
    total.add(at->second);
  }
  return {{"name", name}, {"from", from_s}, {"to", now_s}, {"hours", std::move(rows)}, {"total", to_json(total)}};
}

void History::forget(int64_t now_s) {
  // Where nothing was seen for long, the clock may be wrong, and nothing is thrown away because of it.
  int64_t newest_before = 0;
  for (const auto& [key, hour] : hours_) {
    if (key.second < hour_of(now_s)) newest_before = std::max(newest_before, key.second);
  }
  if (now_s - newest_before < kBelieved) {
    std::erase_if(hours_, [now_s](const auto& row) { return row.first.second < now_s - kKept; });
  }
  if (hours_.size() > kHoursMost) {
    std::vector<int64_t> begins;
    for (const auto& [key, hour] : hours_) begins.push_back(key.second);
    const auto oldest = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() - kHoursMost);
    std::nth_element(begins.begin(), oldest, begins.end());
    std::erase_if(hours_, [least = *oldest](const auto& row) { return row.first.second < least; });
  }
  while (hours_.size() > kHoursMost) hours_.erase(hours_.begin());  // all of one hour
  std::set<std::string> names;
  for (const auto& [key, hour] : hours_) names.insert(key.first);
  std::erase_if(seen_, [&names](const auto& one) { return !names.contains(one.first); });
}

Status History::save(int64_t now_s) {
  forget(now_s);
  json hours = json::array(), seen = json::object();
  for (const auto& [key, hour] : hours_) {
    json row = to_json(hour);
    row["vgpu"] = key.first;
    row["hour"] = key.second;
    hours.push_back(std::move(row));
  }
  for (const auto& [name, one] : seen_) {
    seen[name] = {
        {"session", one.session}, {"compute_ns", one.compute_ns}, {"copy_ns", one.copy_ns}, {"launches", one.launches}};
  }
  return replace_file(
      path(), json_text({{"version", kVersion}, {"hours", std::move(hours)}, {"seen", std::move(seen)}}) + "\n");
}

}  // namespace bandsaw
