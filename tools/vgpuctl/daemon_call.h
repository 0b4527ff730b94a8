// One request to vgpud, with its refusals made ready to print.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/output.h"

namespace bandsaw::ctl {

// The reply's JSON (a text reply as a JSON string), or why there is none.
using Reply = std::variant<nlohmann::json, Refusal>;

Reply call(const Options& options, const std::string& method, const std::string& target,
           const nlohmann::json& body = nlohmann::json::object());
// Prints the reply through `print`, or as JSON, or the refusal.
template <typename Print>
int finish(const Options& options, const Reply& reply, Print print) {
  if (const Refusal* refusal = std::get_if<Refusal>(&reply)) return print_refusal(*refusal, options.json);
  const auto& content = std::get<nlohmann::json>(reply);
  if (options.json) {
    fmt::print("{}\n", json_text(content, 2));
  } else {
    print(content);
  }
  return kOk;
}

// What was given to a command cannot be: says so, and where it is written what can. Returns the exit code.
int print_wrong_usage(const Options& options, const std::string& error);

// The list that vgpud has given, as a table of the columns that were asked for, or as JSON. `rows`: its headings and
// lines.
int print_list(const Options& options, const Reply& reply,
               std::vector<std::vector<std::string>> (*rows)(nlohmann::json list));

// /v1/vgpus/NAME with the name as one part of the path.
std::string vgpu_target(const Options& options, const std::string& action = "");

}  // namespace bandsaw::ctl
