// Requests to this node's vgpud.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "memory/base/status.h"

namespace bandsaw::slurm {

// The answer. Errors: ECONNREFUSED if nobody answers within 10 s, ENOENT for what is not there, EEXIST for a conflict,
// EINVAL for another refusal, each with vgpud's words.
Result<nlohmann::json> ask(const std::string& run, const std::string& method, const std::string& target,
                           const nlohmann::json& body);

}  // namespace bandsaw::slurm
