// What a guest process lends to its other virtual GPUs: physical memory, each under one key, and which of its
// allocations lie in it. It is lent until the last of these is freed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "backend/control/runner_link.h"

namespace bandsaw::runner {

// Not thread-safe. A name is the address of an allocation, or the handle of memory.
class LentMemory {
 public:
  // The key under which the memory that begins at `base` is lent; the allocation is noted too. `context`: whose end is
  // the allocation's; 0: none.
  std::optional<ExchangeKey> find(uint64_t base, uint64_t name, uint64_t context) {
    const auto found = lent_.find(base);
    if (found == lent_.end()) return std::nullopt;
    note(found, name, context);
    return found->second.key;
  }
  // False: it is lent already, under another key.
  bool add(uint64_t base, const ExchangeKey& key) { return lent_.try_emplace(base, Lent{key}).second; }

  // The key to withdraw, if this was the last allocation in its memory.
  std::optional<ExchangeKey> remove(uint64_t name) {
    const auto found = names_.find(name);
    if (found == names_.end()) return std::nullopt;
    const auto in = lent_.find(found->second.base);
    names_.erase(found);
    if (--in->second.names != 0) return std::nullopt;
    const ExchangeKey key = in->second.key;
    lent_.erase(in);
    return key;
  }
  // Any allocation of the context; nothing: it has none.
  std::optional<uint64_t> any_of(uint64_t context) const {
    for (const auto& [name, where] : names_) {
      if (where.context == context) return name;
    }
    return std::nullopt;
  }

 private:
  struct Lent {
    ExchangeKey key{};
    uint64_t names = 0;
  };
  struct Name {
    uint64_t base = 0, context = 0;
  };
  void note(std::map<uint64_t, Lent>::iterator in, uint64_t name, uint64_t context) {
    if (names_.try_emplace(name, Name{in->first, context}).second) ++in->second.names;
  }

  std::map<uint64_t, Lent> lent_;  // by base
  std::map<uint64_t, Name> names_;
};

}  // namespace bandsaw::runner
