// Names that the toolkit's headers give to numbers; generated.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bandsaw::cupti {

struct Named {
  uint32_t number;
  const char* name;
};

// Ordered by number.
extern const Named driver_callbacks[], runtime_callbacks[], result_names[];
extern const size_t driver_callbacks_count, runtime_callbacks_count, result_names_count;

// nullptr: none has this number.
const char* name_of(const Named* table, size_t count, uint32_t number);

// CUPTI's number of a driver function; 0: it has none.
uint32_t driver_callback(const char* function, bool per_thread);

}  // namespace bandsaw::cupti
