// registry.json, as a damaged disk or a hasty hand would leave it. What must hold: vgpud refuses it and leaves it as it
// was, or has virtual GPUs that it can write down and read again.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "backend/vgpud/registry.h"
#include "memory/base/log.h"

namespace {

using namespace bandsaw;

void check(bool holds) {
  if (!holds) std::abort();
}

// In memory: each input is written and synced.
const std::string& folder() {
  static const std::string& path = *new std::string([] {
    char text[] = "/dev/shm/registry-fuzz-XXXXXX";
    check(::mkdtemp(text));
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return std::string(text);
  }());
  return path;
}

std::string content() {
  std::ifstream file(folder() + "/registry.json", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log::silence();
  const std::string before(reinterpret_cast<const char*>(data), size);
  std::ofstream(folder() + "/registry.json", std::ios::binary) << before;
  auto opened = Registry::open(folder());
  check(content() == before);
  if (!opened.ok()) {
    check(!opened.status().message().empty());
    return 0;
  }
  Registry& registry = opened.value();
  const auto names = registry.names();
  VgpuSpec spec;
  spec.name = "fuzz-web0";
  spec.memory = 1 << 30;
  spec.index = registry.free_index();
  for (const VgpuSpec& other : registry.all()) check(other.index != spec.index || other.name == spec.name);
  check(registry.put(spec).ok() && registry.find(spec.name).has_value());
  auto again = Registry::open(folder());
  check(again.ok() && again.value().names() == registry.names());
  for (const std::string& name : names) check(again.value().find(name).has_value());
  return 0;
}
