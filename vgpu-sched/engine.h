// The engines of a GPU: what works beside each other, and is shared out engine by engine. Their numbers and names are
// here and nowhere else: the scheduler, the grant page, the devices, the wire, vgpud's API and vgpuctl use these.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace bandsaw {

enum class Engine : std::uint8_t { kCompute, kCopyIn, kCopyOut };
inline constexpr unsigned kEngines = 3;
// As the control API, the metrics and wire.toml name them.
inline constexpr std::array<std::string_view, kEngines> kEngineNames = {"compute", "copy_in", "copy_out"};

constexpr unsigned index_of(Engine engine) { return static_cast<unsigned>(engine); }

// Where arrays have an element for each engine.
inline constexpr unsigned kCompute = index_of(Engine::kCompute), kCopyIn = index_of(Engine::kCopyIn),
                          kCopyOut = index_of(Engine::kCopyOut);

// For names in the source: one that no engine has does not compile, because the call of a function that is not
// constexpr does not. libcuda has no exceptions to throw.
void no_engine_has_this_name();
consteval Engine engine_named(std::string_view name) {
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    if (kEngineNames[engine] == name) return static_cast<Engine>(engine);
  }
  no_engine_has_this_name();
  return {};
}

}  // namespace bandsaw
