// How this process's kernels are cut into grid slices; handed down by vgpud through the session.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw::runner {

enum class VariantChoice {
  kAuto,        // persistent blocks where vgpud plans how many lie on an SM, else grid slices
  kSliced,      // grid slices
  kPersistent,  // persistent blocks, which claim blocks of the grid from a counter
};

struct SlicingSettings {
  bool enabled = false;
  uint64_t threshold_ns = 4'000'000;  // kernels that take longer are cut
  uint32_t in_flight = 3;             // grid slices of a launch on the device at a time
  // When none of a launch's grid slices ends for so long, its blocks are taken to wait for each other. 0: a multiple of
  // what the kernel takes.
  uint64_t timeout_ns = 0;
  // For tests. Not 0: every launch, from the first on, is cut into grid slices of so many blocks, and the program waits
  // while its code is rewritten.
  uint64_t force_blocks = 0;
  VariantChoice variant = VariantChoice::kAuto;
  // Persistent blocks that are told to stop drop the block that they run, to run it again later, if a block takes
  // longer than this and may be run again (vgpu-sched/ptx/idempotence.h). None: they always end it.
  std::optional<uint64_t> drop_ns;
  bool drop_strict = false;  // of kernels only that may be run again as a whole (Park, Chimera, section 4.2.3)
  // The number of persistent blocks changes while they run: some leave each SM, or more are launched beside them. Else
  // all stop, and are launched again. Not of those that may drop a block.
  bool resize = false;
  // Persistent blocks leave as many SMs as others need, which are chosen by what each costs, and are free within so
  // long if that can be; a block is dropped for it where drop_ns is there too. None: all of them have fewer on each SM.
  // Those blocks are not resized.
  std::optional<uint64_t> take_ns;
  // Where grid slices are planned, a launch that stands behind copies on its stream asks for no time slice before they
  // have ended: it would have room on the device and not use it.
  bool await_copies = false;
  bool count = true;     // where grid slices are planned, the first one of each kernel and shape counts what it does
  bool mps = false;      // others may be on the device beside it
  bool any_gpu = false;  // the device takes PTX for any GPU
};

// "enabled=1 threshold_us=4000 in_flight=3 timeout_ms=0 force_blocks=0 variant=auto count=1 drop_us=500 drop_strict=0
// take_us=15 resize=0 await_copies=0", any of them; what is absent stays as it is. "form=slice" and the like, of
// earlier versions, are read too.
Status read_slicing_settings(std::string_view text, SlicingSettings* settings);

}  // namespace bandsaw::runner
