// One request to vgpud, with its refusals made ready to print.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/output.h"

namespace bandsaw::ctl {

// The reply's JSON (a text reply as a JSON string), or why there is none.
using Reply = std::variant<nlohmann::json, Refusal>;

Reply call(const Options& options, const std::string& method, const std::string& target,
           const nlohmann::json& body = nlohmann::json::object());
// /v1/vgpus/NAME with the name as one part of the path.
std::string vgpu_target(const Options& options, const std::string& action = "");

}  // namespace bandsaw::ctl
