#include "tools/vgpuctl/names.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/control/vgpu_spec.h"
#include "tools/vgpuctl/daemon_call.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#endif

namespace bandsaw::ctl {
namespace {

// What `key` is in each element of a list. `list` empty: the answer is that list.
std::vector<std::string> names_in(const Options& options, const std::string& target, const char* list,
                                  const char* key) {
  const Reply reply = call(options, "GET", target);
  const auto* content = std::get_if<nlohmann::json>(&reply);
  if (content && *list != 0) content = content->contains(list) ? &(*content)[list] : nullptr;
  std::vector<std::string> names;
  if (!content || !content->is_array()) return names;
  for (const auto& one : *content) names.push_back(one.value(key, ""));
  return names;
}

}  // namespace

std::vector<std::string> vgpu_names(const Options& options) { return names_in(options, "/v1/vgpus", "", "name"); }

std::vector<std::string> group_names(const Options& options) {
  std::vector<std::string> names = names_in(options, "/v1/vgpus", "", "group");
  std::erase(names, "");
  names.emplace_back(kNoGroup);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::string> segment_names(const Options& options) { return names_in(options, "/v1/segments", "", "name"); }

std::vector<std::string> device_names(const Options& options) {
  return names_in(options, "/v1/status", "devices", "id");
}

#ifdef BANDSAW_WITH_LIBVIRT
std::vector<std::string> domain_names(const Options& options) {
  auto names = libvirt::domain_names(options.uri);
  return names.ok() ? std::move(names.value()) : std::vector<std::string>();
}
#else
std::vector<std::string> domain_names(const Options&) { return {}; }
#endif

}  // namespace bandsaw::ctl
