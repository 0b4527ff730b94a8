// What `top` shows: two answers of vgpud, a moment apart, made into rates.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bandsaw::ctl {

// States of a virtual GPU that is off its device.
inline constexpr const char *kSuspended = "suspended", *kAsleep = "asleep";

// `before` and `after`: what GET /v1/vgpus answered. {"interval_s", "vgpus": [{name, state, processes, memory,
// memory_used, calls_per_s, launches_per_s, errors_per_s, engines: {compute | copy_in | copy_out: {use_percent,
// share_percent, wait_ms, time_slices_per_s, waiting}}}]}; null where nobody says. wait_ms is the mean of the time
// slices that were granted. A counter that went back began anew, and counts from 0.
nlohmann::json rates(const nlohmann::json& before, const nlohmann::json& after);

// The devices, how many virtual GPUs there are, and how they are scheduled.
std::string device_line(const nlohmann::json& status);
// "9.5", "1234", "56k"; "-" for null.
std::string rate_text(const nlohmann::json& rate);
// device_line(), then a table as wide as it is, for who reads no terminal.
std::vector<std::string> top_lines(const nlohmann::json& status, const nlohmann::json& rates);

}  // namespace bandsaw::ctl
