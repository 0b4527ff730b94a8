// Files that are there whole, or as they were.
#pragma once

#include <string>

#include "memory/base/status.h"

namespace bandsaw {

// Writes `text` so that `path` holds either all of it or what it held before, also after a crash: written beside as
// PATH.new, synced and renamed.
Status replace_file(const std::string& path, const std::string& text);

}  // namespace bandsaw
