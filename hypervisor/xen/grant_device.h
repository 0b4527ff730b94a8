// Grants of one domain by way of /dev/xen/gntdev, opened while the process still may.
#pragma once

#include <sys/types.h>

#include "hypervisor/xen/grants.h"

namespace bandsaw::xen {

class GrantDevice final : public Grants {
 public:
  // `device`: an open /dev/xen/gntdev. What it maps is of `domain`.
  GrantDevice(int device, uint16_t domain) : device_(device), domain_(domain) {}

  Status read(uint32_t ref, std::span<uint8_t> to) override;
  Result<Pages> offer(std::span<const uint32_t> refs) override;
  void withdraw(uint64_t offset, uint32_t count) override;

 private:
  const int device_;  // the caller's
  const uint16_t domain_;
};

}  // namespace bandsaw::xen
