// A report of a virtual GPU's hours as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::ctl {

// Hours of "12h" or "7d". EINVAL: another text, none, or more than 31 days.
Result<int64_t> parse_hours(const std::string& text);
// `report`: as GET /v1/reports/NAME answers it. The heading, a row for each hour in this host's time, and the sum.
std::vector<std::vector<std::string>> report_rows(const nlohmann::json& report);

}  // namespace bandsaw::ctl
