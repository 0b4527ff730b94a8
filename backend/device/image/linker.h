// Links PTX as cuLinkAddData and cuLinkComplete do: inputs are checked as they come, and bound to each other at the
// end. Input is untrusted; nothing here throws. Not thread-safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::image {

class PtxLinker {
 public:
  // PTX text, or what holds some: a fatbin, a host's object file, an archive of those. An archive without PTX adds
  // nothing: what it lacks shows at the end. INVALID_PTX, INVALID_IMAGE, NO_BINARY_FOR_GPU (machine code only),
  // NOT_SUPPORTED (LTO-IR); the log says which input, and where.
  CUresult add(CUjitInputType type, std::span<const std::byte> data, const std::string& name);
  // One PTX module with NUL behind it. INVALID_IMAGE: a name is defined twice, or used and defined nowhere.
  CUresult complete(std::vector<std::byte>* ptx);
  // All that was said so far, a line each.
  const std::string& log() const { return log_; }

 private:
  CUresult add_ptx(const std::string& text, const std::string& name);
  CUresult add_image(std::span<const std::byte> image, const std::string& name);
  CUresult add_embedded(std::span<const std::byte> file, const std::string& name, bool archive);
  CUresult fail(CUresult error, const std::string& why);

  std::vector<ptx::Module> units_;
  std::string log_;
};

// Names that `module` uses and does not define; those that the driver defines are not among them. For tests.
std::vector<std::string> undefined_names(const ptx::Module& module);

}  // namespace bandsaw::image
