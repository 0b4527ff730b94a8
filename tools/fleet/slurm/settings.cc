#include "tools/fleet/slurm/settings.h"

#include <algorithm>
#include <string_view>

namespace bandsaw::slurm {
namespace {

std::string named(std::string text, const std::string& node) {
  for (size_t at = text.find("%n"); at != std::string::npos; at = text.find("%n", at + node.size())) {
    text.replace(at, 2, node);
  }
  return text;
}

std::string* field(Settings* settings, std::string_view name) {
  if (name == "run") return &settings->run;
  if (name == "jobs") return &settings->jobs;
  if (name == "program") return &settings->program;
  if (name == "libraries") return &settings->libraries;
  return nullptr;
}

}  // namespace

Settings Settings::of_node(const std::string& node) const {
  return {named(run, node), named(jobs, node), named(program, node), named(libraries, node)};
}

Result<Settings> parse_settings(const std::vector<std::string>& words) {
  Settings settings;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    std::string* value = equals == std::string::npos ? nullptr : field(&settings, word.substr(0, equals));
    if (!value) {
      return Status::error(
          EINVAL, "plugstack.conf: '{}' is not known; there are run=, jobs=, program=, libraries=", word.substr(0, 64));
    }
    *value = word.substr(equals + 1);
  }
  return settings;
}

std::string with_folder_first(const std::string& folder, const std::string& list) {
  std::string all = folder;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    if (!one.empty() && one != folder) all.append(":").append(one);
  }
  return all;
}

}  // namespace bandsaw::slurm
