// What the driver and this process hold for a guest's small objects: streams, events, graphs and such. As many as
// programs commonly have come with a context's price; further ones count against the memory share.
#pragma once

#include <array>
#include <cstdint>

#include "backend/control/object_limits.h"
#include "guest-driver/uapi/wire.h"
#include "memory/share.h"

namespace bandsaw {
class DeviceHost;
}

namespace bandsaw::runner {

// Of one guest process. Not thread-safe.
class ObjectLedger {
 public:
  // Counts only, until prices are set.
  ObjectLedger() = default;
  // `on_gpu`: NVIDIA's driver holds the objects. `quota` is asked for each that has a limit, null: none has. Both
  // outlive this.
  void set_prices(bool on_gpu, DeviceHost* host, ObjectQuota* quota = nullptr);

  // One more object of that kind. False: it would pass the share or a limit, and nothing has changed.
  bool take(wire::HandleKind kind);
  void give_back(wire::HandleKind kind);
  uint64_t bytes() const { return charge_.bytes(); }

 private:
  static constexpr size_t kKinds = 32;
  struct Entry {
    uint32_t count = 0, included = ~uint32_t{0};
    uint64_t bytes = 0;  // of each beyond those that are included
  };
  std::array<Entry, kKinds> entries_;
  ObjectQuota* quota_ = nullptr;
  uint64_t owed_ = 0;
  Charge<DeviceHost> charge_;  // owed_, in steps
};

}  // namespace bandsaw::runner
