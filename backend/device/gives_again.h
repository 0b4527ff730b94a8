// A device that gives a process, made anew by calls that are made again (given.h), the addresses that another one had.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/device/device.h"

namespace bandsaw {

class GivesAgain {
 public:
  virtual ~GivesAgain() = default;
  // Whether memory that was given to a noted call begins there.
  virtual bool has_memory(uint64_t address) = 0;
  // What the program has here and no noted call was given, in words; empty: nothing. Also while memory is away.
  virtual std::string not_given() = 0;
  // How long ago the event was recorded, in nanoseconds; nothing: it was not.
  virtual std::optional<int64_t> event_age(const EventRef& event) = 0;
  virtual CUresult event_set_age(const EventRef& event, int64_t nanoseconds) = 0;
};

}  // namespace bandsaw
