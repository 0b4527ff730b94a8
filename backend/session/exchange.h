// What guest processes hand to each other: memory and events, published by one runner of this virtual GPU and fetched
// by others by a key that nobody can guess. A key of another virtual GPU means nothing here: it says whose it is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Whose a guest process is, as far as this host's kernel says: of that VM, or of that user of the host. Only what has
// one owner is passed from one virtual GPU to another.
struct GuestOwner {
  enum class Kind : uint32_t { kNobody, kVm, kUser };
  Kind kind = Kind::kNobody;
  uint32_t id = 0;  // QEMU's process, or the user
  bool operator==(const GuestOwner&) const = default;
};

// Threads: the event loop's only.
class Exchange {
 public:
  static constexpr size_t kThingsMost = 4096;  // of one owner

  using Owner = const void*;
  struct Thing {
    Owner owner = nullptr;
    UniqueFd fd;  // may be empty
    uint64_t bytes = 0;
    std::array<uint8_t, 64> payload{};
    GuestOwner guest{};  // whose it is; kNobody: no other virtual GPU gets it
  };

  // `index`: of this virtual GPU.
  explicit Exchange(uint32_t index = 0) : index_(index) {}
  // Told of the key of each thing that is withdrawn or dropped.
  void set_on_gone(std::function<void(const ExchangeKey&)> on_gone) { on_gone_ = std::move(on_gone); }

  // An error: this owner has published too much.
  Result<ExchangeKey> publish(Thing thing);
  // nullptr: no such thing. Valid until the next call of another member.
  const Thing* find(const ExchangeKey& key) const;
  // Only the owner of a thing can withdraw it.
  void withdraw(Owner owner, const ExchangeKey& key);
  // All that an owner has published.
  void drop(Owner owner);
  size_t size() const { return things_.size(); }
  const std::map<Owner, size_t>& counts() const { return counts_; }  // of things, by owner

 private:
  const uint32_t index_;
  std::function<void(const ExchangeKey&)> on_gone_;
  std::map<ExchangeKey, Thing> things_;
  std::map<Owner, size_t> counts_;
};

}  // namespace bandsaw
