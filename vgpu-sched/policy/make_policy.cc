#include "vgpu-sched/policy/band.h"
#include "vgpu-sched/policy/band_plus.h"
#include "vgpu-sched/policy/credit.h"
#include "vgpu-sched/policy/fifo.h"

namespace bandsaw::sched {

std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options) {
  if (name == "fifo") return std::make_unique<Fifo>();
  if (name == "credit") return std::make_unique<Credit>(options);
  if (name == "band") return std::make_unique<Band>(options);
  if (name == "band+") return std::make_unique<BandPlus>(options);
  return nullptr;
}

}  // namespace bandsaw::sched
