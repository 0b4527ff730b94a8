#include "backend/sandbox/device_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace bandsaw {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "nvidia", kCapabilities = "nvidia-caps";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "nvidia0".
bool is_gpu(std::string_view name) { return name.starts_with(kPrefix) && is_number(name.substr(kPrefix.size())); }

// What switches, displays and links between hosts need is no program's of ours.
bool is_for_all(std::string_view name) {
  return name == "nvidiactl" || name == "nvidia-uvm" || name == "nvidia-uvm-tools";
}

std::string after_colon(const std::string& line) {
  const size_t colon = line.find(':');
  const size_t from = colon == line.npos ? line.npos : line.find_first_not_of(" \t", colon + 1);
  return from == line.npos ? "" : line.substr(from, line.find_last_not_of(" \t") + 1 - from);
}

// Of a GPU by its UUID, as in /dev/nvidiaN; empty: nobody says.
std::string minor_of(const std::string& gpu, const std::string& driver) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(driver + "/gpus", ignored)) {
    std::ifstream file(entry.path() / "information");
    std::string uuid, minor;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("GPU UUID")) uuid = after_colon(line);
      if (line.starts_with("Device Minor")) minor = after_colon(line);
    }
    if (uuid == gpu && is_number(minor)) return minor;
  }
  return "";
}

}  // namespace

std::vector<std::string> nvidia_files(const std::string& devices) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(devices, ignored)) {
    const std::string name = entry.path().filename();
    if (is_gpu(name) || is_for_all(name)) names.push_back(name);
  }
  for (const auto& entry : fs::directory_iterator(devices + "/" + std::string(kCapabilities), ignored)) {
    names.push_back(std::string(kCapabilities) + "/" + entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> files_of_gpu(const std::string& gpu, bool peers, const std::string& devices,
                                      const std::string& driver) {
  const bool part = gpu.starts_with("MIG-");  // capabilities say who may use which instance
  const std::string minor = minor_of(gpu, driver);
  std::vector<std::string> names = nvidia_files(devices);
  const std::string wanted = std::string(kPrefix) + minor;
  const bool known = !minor.empty() && std::find(names.begin(), names.end(), wanted) != names.end();
  std::erase_if(names, [&](const std::string& name) {
    if (name.starts_with(kCapabilities)) return !part;
    return is_gpu(name) && known && !peers && name != wanted;
  });
  return names;
}

}  // namespace bandsaw
