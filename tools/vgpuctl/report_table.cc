#include "tools/vgpuctl/report_table.h"

#include <fmt/format.h>

#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

#include "backend/control/vgpu_spec.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

std::string time_text(int64_t at) {
  const time_t when = at;
  tm local{};
  if (!::localtime_r(&when, &local)) return std::to_string(at);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                     local.tm_hour, local.tm_min);
}

std::string part(double used, double promised) {
  return promised > 0 ? fmt::format("{:.1f} %", 100 * used / promised) : "-";
}

std::vector<std::string> row_of(const std::string& name, const json& use) {
  const auto number = [&use](const char* key) { return use.value(key, 0.0); };
  const double observed = number("observed_s");
  const double memory = observed > 0 ? number("memory_byte_s") / observed : 0;
  return {name,
          fmt::format("{:.0f}", observed),
          fmt::format("{:.3f}", number("compute_s")),
          part(number("compute_s"), number("promised_compute_s")),
          fmt::format("{:.3f}", number("copy_s")),
          part(number("copy_s"), number("promised_copy_s")),
          format_size(static_cast<uint64_t>(memory)),
          part(number("memory_byte_s"), number("promised_memory_byte_s")),
          format_size(use.value("memory_most", uint64_t{0})),
          std::to_string(use.value("launches", uint64_t{0}))};
}

}  // namespace

Result<int64_t> parse_hours(const std::string& text) {
  int64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data(), last, number);
  const bool days = end != last && *end == 'd';
  if (code == std::errc() && end + 1 == last && (days || *end == 'h') && number > 0 && number <= kHistoryHours) {
    const int64_t hours = days ? 24 * number : number;
    if (hours <= kHistoryHours) return hours;
  }
  return Status::error(EINVAL, "--last is '{}'", text.substr(0, 64));
}

std::vector<std::vector<std::string>> report_rows(const json& report) {
  std::vector<std::vector<std::string>> rows = {
      {"HOUR", "SEEN s", "COMPUTE s", "OF SHARE", "COPY s", "OF SHARE", "MEMORY", "OF SHARE", "MOST", "LAUNCHES"}};
  for (const json& hour : report.value("hours", json::array())) {
    rows.push_back(row_of(time_text(hour.value("hour", int64_t{0})), hour));
  }
  rows.push_back(row_of("all", report.value("total", json::object())));
  return rows;
}

}  // namespace bandsaw::ctl
