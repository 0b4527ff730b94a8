// How virtual GPUs reach each other: what their sessions say of the GPUs below them.
#pragma once

#include "guest-driver/nvml/device.h"

namespace bandsaw::nvml {

// `device` is checked, here and below. A host that does not know the question: nothing is reached.
nvmlReturn_t links_of(nvmlDevice_t device, vgpu_answer_links* links);

// Whether kernels of the one reach the other's memory, as cuDeviceCanAccessPeer has to find.
bool reaches(const vgpu_answer_links& links, const vgpu_answer_links& other);

// NOT_SUPPORTED: this device has no links. INVALID_ARGUMENT: no such link. Else `up` says whether it is one.
nvmlReturn_t find_link(nvmlDevice_t device, unsigned link, vgpu_answer_links* links, bool* up);

// The virtual GPU of this process that lies at the end of a link that is up; null: a switch.
nvmlDevice_t end_of_link(const vgpu_answer_links& links, unsigned link);

// Whether the field is one of NVLink's; if so `value` is complete, with its error.
bool read_link_field(nvmlDevice_t device, nvmlFieldValue_t* value);

}  // namespace bandsaw::nvml
