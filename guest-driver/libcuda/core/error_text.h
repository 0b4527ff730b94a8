// Names and texts of CUresult codes; the table is generated from calls/errors.toml.
#pragma once

#include <cstddef>

namespace bandsaw::libcuda {

struct ErrorText {
  int value;
  const char* name;
  const char* text;
};
extern const ErrorText kErrorTexts[];
extern const size_t kErrorTextCount;

// nullptr for an unknown code.
const ErrorText* find_error(int value);

}  // namespace bandsaw::libcuda
