#include "backend/runner/objects/object_ledger.h"

#include <algorithm>
#include <optional>

#include "backend/device/device.h"

namespace bandsaw::runner {
namespace {

using wire::HandleKind;

constexpr uint64_t kKiB = 1 << 10, kStep = 1 << 20;  // charged at once, so that not every object asks the share

struct Price {
  HandleKind kind;
  uint32_t included;
  uint64_t gpu, soft;  // bytes of each further one
};

// A GPU's stream is measured (20,000 hold 10.9 GiB of the GPU); the others stand for the host memory that both drivers
// take for them.
constexpr Price kPrices[] = {{HandleKind::kStream, 256, 576 * kKiB, 4 * kKiB},
                             {HandleKind::kEvent, 16384, 4 * kKiB, kKiB},
                             {HandleKind::kGraph, 1024, 16 * kKiB, 4 * kKiB},
                             {HandleKind::kExec, 1024, 64 * kKiB, 16 * kKiB},
                             {HandleKind::kNode, 65536, kKiB, kKiB},
                             {HandleKind::kModule, 1024, 64 * kKiB, 64 * kKiB},
                             {HandleKind::kLibrary, 1024, 64 * kKiB, 64 * kKiB},
                             {HandleKind::kKernel, 65536, kKiB, kKiB},
                             {HandleKind::kFunction, 65536, kKiB, kKiB},
                             {HandleKind::kPool, 64, 64 * kKiB, 16 * kKiB},
                             {HandleKind::kLinker, 16, 1024 * kKiB, 64 * kKiB}};

// Which limit an object counts against, if any.
std::optional<Limited> limited(HandleKind kind) {
  switch (kind) {
    case HandleKind::kContext:
      return Limited::kContexts;
    case HandleKind::kStream:
      return Limited::kStreams;
    case HandleKind::kEvent:
      return Limited::kEvents;
    case HandleKind::kGraph:
    case HandleKind::kExec:
      return Limited::kGraphs;
    case HandleKind::kModule:
    case HandleKind::kLibrary:
    case HandleKind::kLinker:
      return Limited::kModules;
    case HandleKind::kPool:
      return Limited::kPools;
    default:
      return std::nullopt;
  }
}

}  // namespace

void ObjectLedger::set_prices(bool on_gpu, DeviceHost* host, ObjectQuota* quota) {
  quota_ = quota;
  charge_ = Charge<DeviceHost>(host);
  for (const Price& price : kPrices) {
    Entry& entry = entries_[static_cast<size_t>(price.kind)];
    entry.included = price.included;
    entry.bytes = on_gpu ? price.gpu : price.soft;
  }
}

bool ObjectLedger::take(HandleKind kind) {
  Entry& entry = entries_.at(static_cast<size_t>(kind));
  const uint64_t price = entry.count >= entry.included ? entry.bytes : 0;
  const auto limit = quota_ ? limited(kind) : std::nullopt;
  if (limit && !quota_->hold(*limit)) return false;
  if (owed_ + price > charge_.bytes() && !charge_.resize((owed_ + price + kStep - 1) / kStep * kStep)) {
    if (limit) quota_->let_go(*limit);
    return false;
  }
  owed_ += price;
  ++entry.count;
  return true;
}

void ObjectLedger::give_back(HandleKind kind) {
  Entry& entry = entries_.at(static_cast<size_t>(kind));
  if (entry.count == 0) return;
  if (const auto limit = quota_ ? limited(kind) : std::nullopt) quota_->let_go(*limit);
  if (--entry.count >= entry.included) owed_ -= entry.bytes;
  const uint64_t wanted = (owed_ + kStep - 1) / kStep * kStep;
  if (wanted + kStep < charge_.bytes() || owed_ == 0) charge_.resize(wanted);
}

}  // namespace bandsaw::runner
