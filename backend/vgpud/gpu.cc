#include "backend/vgpud/gpu.h"

#include <algorithm>

namespace bandsaw {

const Gpu* Gpus::find(const std::string& name) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&name](const Gpu& gpu) {
    return gpu.device.name == name || (!name.empty() && gpu.device.visible == name);
  });
  return found == all_.end() ? nullptr : &*found;
}

std::string Gpus::names() const {
  std::string result;
  for (const Gpu& gpu : all_) result += fmt::format("{}'{}'", result.empty() ? "" : ", ", gpu.device.name);
  return result;
}

}  // namespace bandsaw
