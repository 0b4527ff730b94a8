// The virtual GPUs of this host, the device of each, their shared segments, the policy that was chosen, and the devices
// that are drained, kept on disk in STATE/registry.json.
//
// A change is on disk before it is true: the file is written beside, synced and renamed, so that a crash or a full
// disk leaves the old one, and the call fails with the reason.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/device.h"
#include "backend/vgpud/segments.h"
#include "memory/base/status.h"

namespace bandsaw {

class Registry {
 public:
  // Makes the folder; a file that cannot be understood is an error, never thrown away.
  static Result<Registry> open(const std::string& directory);

  const std::vector<VgpuSpec>& all() const { return content_.specs; }
  std::optional<VgpuSpec> find(const std::string& name) const;  // a copy: each change replaces what is stored
  std::vector<std::string> names() const;
  uint32_t free_index() const;

  // Finds the device of each among those that there are now: by the GPU's UUID if it was noted, so that virtual GPUs
  // stay on their GPU when others are added or taken away; else by name. Those of a registry that names no device are
  // on the first. It is on disk with the next change. `devices` is not empty.
  void settle(std::span<const PhysicalDevice> devices);

  Status put(const VgpuSpec& spec);  // adds, or replaces the one of that name
  // With its shared segments, and its rights to those of others.
  Status remove(const std::string& name);

  const std::vector<SegmentSpec>& segments() const { return content_.segments; }
  std::optional<SegmentSpec> find_segment(const std::string& name) const;
  Status put_segment(const SegmentSpec& segment);  // as put()
  Status remove_segment(const std::string& name);

  const StoredChoice& choice() const { return content_.choice; }
  Status put_choice(const StoredChoice& choice);
  const StoredPlanningMode& planning_mode() const { return content_.planning_mode; }
  Status put_planning_mode(const StoredPlanningMode& mode);
  // Whether a device takes no new virtual GPUs; a GPU is known by its UUID, whatever its number.
  bool drained(const PhysicalDevice& device) const;
  Status put_drained(const PhysicalDevice& device, bool drained);

 private:
  struct Content {
    std::vector<VgpuSpec> specs;        // by name
    std::vector<SegmentSpec> segments;  // by name
    StoredChoice choice;
    StoredPlanningMode planning_mode;
    std::set<std::string> drained;  // UUIDs, and names of devices that have none
  };
  explicit Registry(std::string directory) : directory_(std::move(directory)) {}
  Status load();
  Status load_choice(const nlohmann::json& file);
  Status load_planning_mode(const nlohmann::json& file);
  Status load_segments(const nlohmann::json& file);
  Status load_drained(const nlohmann::json& file);
  // Writes it, and then it is true.
  Status commit(Content changed);
  std::string path() const { return directory_ + "/registry.json"; }

  std::string directory_;
  Content content_;
};

}  // namespace bandsaw
