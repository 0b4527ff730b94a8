// How this process's kernels are cut into grid slices; handed down by vgpud through the session.
#pragma once

#include <cstdint>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw::runner {

enum class SliceForm {
  kAuto,      // resident blocks where vgpud plans how many lie on an SM, else grid slices
  kSlices,    // grid slices
  kResident,  // persistent blocks, which claim the grid's from a counter ("persistent")
};

struct SlicingSettings {
  bool enabled = false;
  uint64_t threshold_ns = 4'000'000;  // kernels that take longer are cut
  uint32_t in_flight = 3;             // grid slices of a launch on the device at a time
  // So long none of a launch's grid slices ends although they have begun, and its blocks are taken to wait for each
  // other. 0: a multiple of what the kernel takes.
  uint64_t timeout_ns = 0;
  // For tests. Not 0: every launch is cut into grid slices of so many blocks from the first on, and its code is
  // rewritten while the program waits.
  uint64_t force_blocks = 0;
  SliceForm form = SliceForm::kAuto;
  bool count = true;     // what kernels do is counted, once each, where it is planned whose run beside each other
  bool mps = false;      // others may be on the device beside it
  bool any_gpu = false;  // the device takes PTX for any GPU
};

// "enabled=1 threshold_us=4000 in_flight=3 timeout_ms=0 force_blocks=0 form=auto count=1", any of them; what is absent
// stays as it is.
Status read_slicing_settings(std::string_view text, SlicingSettings* settings);

}  // namespace bandsaw::runner
