// The elements in a domain's <metadata>, as nodes; domain.h describes them.
#pragma once

#include "hypervisor/libvirt/domain.h"
#include "hypervisor/libvirt/xml_tree.h"

namespace bandsaw::libvirt::xml {

// EINVAL: an element in our namespace is malformed.
Result<std::vector<DomainVgpu>> read_metadata(xmlNode* domain);
// Adds the virtual GPU, or completes it: shares that are there stay.
Status add_metadata(xmlNode* domain, const DomainVgpu& added);
void remove_metadata(xmlNode* domain, const std::string& vgpu);

}  // namespace bandsaw::libvirt::xml
