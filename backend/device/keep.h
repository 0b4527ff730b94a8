// How the compute engine is kept for a program (Device::keep_engine).
#pragma once

#include <cstdint>

namespace bandsaw {

// kBehindWork: from when what was issued has ended until more has come. kBesideWork: all the time, for who leaves gaps
// between its launches.
enum class Keep : uint8_t { kNot, kBehindWork, kBesideWork };

}  // namespace bandsaw
