// The physical devices of this host, each with what serves its virtual GPUs alone.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/device.h"

namespace bandsaw {

struct Gpu {
  PhysicalDevice device;
  std::shared_ptr<Arbiter> arbiter;  // of its engines; never null
};

// One at least, in the order of the configuration. Threads: the event loop's only.
class Gpus {
 public:
  explicit Gpus(std::vector<Gpu> all) : all_(std::move(all)) {}

  std::vector<Gpu>& all() { return all_; }
  const std::vector<Gpu>& all() const { return all_; }
  Gpu& first() { return all_.front(); }
  const Gpu& first() const { return all_.front(); }
  // By name, or by UUID as `nvidia-smi -L` lists it; null: there is none.
  const Gpu* find(const std::string& name) const;
  Gpu* find(const std::string& name) { return const_cast<Gpu*>(std::as_const(*this).find(name)); }
  // That of a virtual GPU; null: it belongs to a device that is not configured.
  const Gpu* of(const VgpuSpec& spec) const { return find(spec.device); }
  // "'cuda:0', 'cuda:1'", for messages.
  std::string names() const;

 private:
  std::vector<Gpu> all_;
};

}  // namespace bandsaw
