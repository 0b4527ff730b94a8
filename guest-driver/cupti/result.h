// How entry points return.
#pragma once

#include <cupti.h>

namespace bandsaw::cupti {

// Remembers an error for cuptiGetLastError, and gives it back.
CUptiResult result(CUptiResult value);

}  // namespace bandsaw::cupti
