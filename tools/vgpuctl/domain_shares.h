// Shares in a domain's metadata, and in vgpud: whoever is read, the other follows.
#pragma once

#include <optional>

#include "memory/base/status.h"
#include "tools/vgpuctl/daemon_call.h"

namespace bandsaw::ctl {

// After `set`: the domain that `view` is attached to gets the changed shares into its metadata, if that has the virtual
// GPU, so that its next start does not bring the old ones back. What keeps it from that is told on stderr.
void follow_in_domain(const Options& options, const nlohmann::json& changed, const nlohmann::json& view);

// Before `attach`: sets the shares that the domain's metadata already has for this virtual GPU. `set`: whether there
// were any. The refusal, if there is one.
std::optional<Refusal> take_from_domain(const Options& options, bool* set);

// libvirt's URI for a domain on Xen: as given, or of the environment, or Xen's.
std::string xen_uri(const Options& options);

// Why libvirt did not do it, and what to do.
Refusal libvirt_refusal(const Status& status, const Options& options, const std::string& domain);

}  // namespace bandsaw::ctl
