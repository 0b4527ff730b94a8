// What a virtual GPU says of the links of its GPU: whom it reaches, by numbers that say nothing of the host.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/control/gpu_report.h"

namespace bandsaw {

// Of a physical GPU, never 0: the same for every session of the host, and different from other GPUs'.
uint32_t physical_number(std::string_view host, uint64_t pci_address);

// `own`: the GPU's PCI address.
vgpu_answer_links links_of_gpu(std::string_view host, uint64_t own, const GpuLinks& links);
// Of a software device: those of one host reach each other, by no link.
vgpu_answer_links links_of_software(std::string_view host);

}  // namespace bandsaw
