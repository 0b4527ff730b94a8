#include "guest-driver/cupti/names.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

namespace bandsaw::cupti {

const char* name_of(const Named* table, size_t count, uint32_t number) {
  const Named* const end = table + count;
  const Named* const found =
      std::lower_bound(table, end, number, [](const Named& row, uint32_t wanted) { return row.number < wanted; });
  return found != end && found->number == number ? found->name : nullptr;
}

uint32_t driver_callback(const char* function, bool per_thread) {
  // Leaked: calls come in until the process is gone.
  static const auto* const numbers = [] {
    auto* const made = new std::unordered_map<std::string_view, uint32_t>;
    for (size_t i = 0; i < driver_callbacks_count; i++)
      made->emplace(driver_callbacks[i].name, driver_callbacks[i].number);
    return made;
  }();
  for (const char* const suffix : {"_ptsz", "_ptds"}) {
    if (!per_thread) break;
    if (const auto found = numbers->find(std::string(function) + suffix); found != numbers->end()) return found->second;
  }
  const auto found = numbers->find(function);
  return found == numbers->end() ? 0 : found->second;
}

}  // namespace bandsaw::cupti
