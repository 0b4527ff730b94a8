// Time slices of engines as a trace that Perfetto and chrome://tracing open.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

namespace bandsaw::ctl {

// What the processes of virtual GPUs are called, by the virtual GPU's name and the process's slot.
using ProcessNames = std::map<std::pair<std::string, int64_t>, std::string>;
// Adds those of virtual GPUs as GET /v1/vgpus answers them: "python3 (4711)".
void add_names(const nlohmann::json& views, ProcessNames* names);

// `taken`: what POST /v1/trace/take answered. Each virtual GPU is a process; each of its engines a row of time slices,
// one of waiting, with an arrow from a wait to its time slice, and a counter of how much of the engine it has. While a
// gate stood open there are no time slices: a row says how long, and `charged_us` how much work there was.
std::string chrome_trace(const nlohmann::json& taken, const ProcessNames& names);

}  // namespace bandsaw::ctl
