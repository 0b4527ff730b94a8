// Time slices of engines as a trace that Perfetto and chrome://tracing open.
//
// Source: the Trace Event Format (JSON): complete events ("X") with times in microseconds, metadata events ("M").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace bandsaw::ctl {

// `taken`: what POST /v1/trace/take answered. Each virtual GPU is a process; each of its engines a row of time slices,
// with more rows where time slices overlap, and under them rows of the times they waited.
std::string chrome_trace(const nlohmann::json& taken);

}  // namespace bandsaw::ctl
