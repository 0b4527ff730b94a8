// How much short work runners gather to a time slice.
#pragma once

#include "backend/vgpud/arbiter/grant_table.h"

namespace bandsaw {

class Quantum {
 public:
  // Both outlive this.
  Quantum(const ArbiterOptions* options, GrantTable* table)
      : options_(options), table_(table), now_(options->quantum_ns) {}

  void post(GrantPage& page) const { page.quantum_ns = static_cast<uint64_t>(now_); }
  // Tells all runners where the number of those who want the GPU has changed it.
  void fit(sched::Time now);

 private:
  bool is_active(const VgpuState& vgpu, sched::Time now) const;

  const ArbiterOptions* const options_;
  GrantTable* const table_;
  sched::Time now_;
};

}  // namespace bandsaw
