// Capabilities, and how they are given up.
#pragma once

#include "memory/base/status.h"

namespace bandsaw {

bool has_capability(int capability);
Status drop_capabilities();
// No program that is executed gains any again.
void empty_bounding_set();

}  // namespace bandsaw
