// Libraries with managed variables.
//
// The driver would allot such variables itself, at addresses whose pages the guest cannot see. So these libraries are
// loaded from their PTX, in which every managed variable is replaced by the address that the guest chose for it: memory
// of the guest that is mapped here at the same address and registered with the driver, or addresses of the device's
// where the guest moves the bytes to and fro.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/device/cuda/driver.h"
#include "backend/device/device.h"

namespace bandsaw::cuda {

// The PTX of one library, until all of its managed variables have their places. Thread-safe.
class ManagedCode {
 public:
  virtual ~ManagedCode() = default;

  // `code` stays null for an image that the driver is to load as it is: one without managed variables, or without PTX
  // for GPUs of this compute capability (90 for 9.0). Errors, with the reason in `log`: such PTX cannot be read, or not
  // be rewritten.
  static CUresult find(std::span<const std::byte> image, uint32_t capability, std::shared_ptr<ManagedCode>* code,
                       std::string* log);

  virtual std::vector<ManagedVariable> variables() const = 0;

  // Memory of the variable's size at `address` is its place, and `pages` are the program's there. The last variable's
  // turn loads the library and writes all initial values to the pages; before that, `library` is null. The device's own
  // context must be current.
  virtual CUresult bind(const Driver& driver, const std::string& name, uint64_t address,
                        const std::shared_ptr<std::byte>& pages, std::atomic<CUlibrary>* library) = 0;
};

}  // namespace bandsaw::cuda
