// The key `devices` of vgpud's configuration: what virtual GPUs are cut from, when it is more than one device.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <vector>

#include "backend/vgpud/device.h"
#include "memory/base/status.h"

namespace bandsaw {

// A list of names, or of tables {name, memory, sms, policy, queues, planning}; or "all", which sets `all_gpus`. See
// administration.md. `path` is the file's, for messages. EINVAL names the line and what is wrong.
Status read_devices(const toml::table& root, const std::string& path, std::vector<PhysicalDevice>* devices,
                    bool* all_gpus);

}  // namespace bandsaw
