// What `top` shows: two answers of vgpud, a moment apart, made into rates.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bandsaw::ctl {

// `before` and `after`: what GET /v1/vgpus answered. {"interval_s", "vgpus": [{name, state, processes, memory,
// memory_used, calls_per_s, launches_per_s, errors_per_s, engines: {compute | copy_in | copy_out: {use_percent,
// share_percent, wait_ms, time_slices_per_s, waiting}}}]}; null where nobody says. wait_ms is the mean of the time
// slices that were granted. A counter that went back began anew, and counts from 0.
nlohmann::json rates(const nlohmann::json& before, const nlohmann::json& after);

// One line about the device, then a table whose lines are at most `columns` wide (0: as wide as they are).
std::vector<std::string> top_lines(const nlohmann::json& status, const nlohmann::json& rates, size_t columns);

}  // namespace bandsaw::ctl
