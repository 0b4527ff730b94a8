// What vgpud tells Prometheus, in its text exposition format (version 0.0.4).
//
// Counters begin at 0 when a session or vgpud starts anew, as Prometheus expects of a restart.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace bandsaw {

// `status` and `vgpus`: what GET /v1/status and GET /v1/vgpus answer. What a session or the arbiter does not say has no
// sample.
std::string render_metrics(const nlohmann::json& status, const nlohmann::json& vgpus);

}  // namespace bandsaw
