// What a program has said of the pages of one allocation of managed memory: advice, and where they were prefetched to.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "memory/managed/residency.h"

namespace bandsaw::managed {

// A type and number as CUmemLocation has them. Type 0: none.
struct Place {
  uint32_t type = 0;
  int32_t id = 0;
  bool operator==(const Place&) const = default;
};

struct Advice {
  bool read_mostly = false, accessed_by_host = false, accessed_by_device = false;
  Place preferred, prefetched;
  bool operator==(const Advice&) const = default;
};

// Not thread-safe. A run is what a program names: pages that it lies in partly are meant, too.
class AdviceTable {
 public:
  // `bytes` above 0, as the other two.
  AdviceTable(uint64_t bytes, uint64_t page_bytes) : bytes_(bytes), page_(page_bytes), stretches_{{0, {}}} {}

  void change(Run run, const std::function<void(Advice&)>& change);
  // What is said of all pages of the run; a property that they do not share is as nobody has said anything.
  Advice of(Run run) const;

 private:
  using Stretches = std::map<uint64_t, Advice>;
  Stretches::iterator cut(uint64_t offset);

  const uint64_t bytes_, page_;
  Stretches stretches_;  // by beginning; each ends where the next begins
};

}  // namespace bandsaw::managed
