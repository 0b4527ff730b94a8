// How a virtual GPU is written into a libvirt domain.
//
// libvirt has no element of its own for a vfio-user device, so the device is an argument that libvirt hands to QEMU
// (<qemu:commandline>), and guest memory must be a shared memfd (<memoryBacking>) for the session to reach it. An
// element in <metadata> carries the virtual GPU's name and its shares:
//
//   <bandsaw:vgpus xmlns:bandsaw='https://bandsaw.dev/xmlns/libvirt/1.0'>
//     <bandsaw:vgpu name='web0' memory='8G' compute='30' copy='30' cap='100' reserve='0' priority='0'
//                   latency_us='250' sharing='time-sliced' sms='0'/>
//   </bandsaw:vgpus>
//
// One <bandsaw:vgpus> holds them all, because libvirt keeps one element of each namespace. A <bandsaw:vgpu> that stands
// alone, as earlier versions wrote it, is read too. One that is in a group of MPS has group='NAME' too. All shares may
// be left out; those that are there win over what vgpud has, when the domain is attached and when it starts (hook/).
// libvirt applies a change of this only when the domain starts; live.h is for one that runs. A domain on Xen has the
// metadata alone: its device is in xenstore.
//
// Threads: every function opens and closes its own connection and may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::libvirt {

inline constexpr const char* kMetadataNamespace = "https://bandsaw.dev/xmlns/libvirt/1.0";

// Names and values as texts, as a person writes them ("memory", "8G").
using Shares = std::vector<std::pair<std::string, std::string>>;

struct Attachment {
  std::string vgpu;    // name of the virtual GPU
  std::string socket;  // absolute path of its vfio.sock, or of its vfio-live.sock for plug()
  Shares shares{};     // written where the domain's metadata does not say other
};

// What a domain's metadata says of a virtual GPU.
struct DomainVgpu {
  std::string vgpu;
  Shares shares{};  // in the order of the attributes; values are not looked at
};

// Empty: the domain says nothing of virtual GPUs. EINVAL: the text is no domain, or its metadata in our namespace is
// not as above, with what is wrong.
Result<std::vector<DomainVgpu>> read_metadata(const std::string& domain_xml);
// The domain with these shares in its metadata. ENOENT: its metadata does not have this virtual GPU.
Result<std::string> change_metadata(const std::string& domain_xml, const DomainVgpu& change);

// What to paste into a domain by hand: a whole <domain> fragment with the three elements.
std::string domain_snippet(const Attachment& attachment);
// The same for a domain on Xen (libvirt's driver libxl): the metadata alone, by which the hook gives it the virtual
// GPU.
std::string xen_domain_snippet(const Attachment& attachment);

// Adds the attachment to a domain's XML, or takes it out. The text is the domain's inactive definition. Errors:
// EEXIST (attached already), ENOENT (not attached), EINVAL (not a domain).
Result<std::string> add_to_xml(const std::string& domain_xml, const Attachment& attachment);
Result<std::string> remove_from_xml(const std::string& domain_xml, const Attachment& attachment);
// The metadata alone, as a domain on Xen has it. Adding twice changes nothing.
Result<std::string> add_metadata_to_xml(const std::string& domain_xml, const Attachment& attachment);
Result<std::string> remove_metadata_from_xml(const std::string& domain_xml, const Attachment& attachment);

// All domains, running or not. Errors: ENOTCONN, EIO.
Result<std::vector<std::string>> domain_names(const std::string& uri);
// The inactive definition of a domain. Errors: ENOENT, ENOTCONN.
Result<std::string> domain_xml(const std::string& uri, const std::string& domain);
// change_metadata() on a persistent domain; it may be running.
Status set_shares(const std::string& uri, const std::string& domain, const DomainVgpu& change);

// add_to_xml() and remove_from_xml() on a persistent domain. `uri` may be empty: libvirt's default
// (LIBVIRT_DEFAULT_URI). `may_run`: also while it runs, for its next start. Errors: ENOENT (no such domain), EBUSY (it
// is running), ENOTCONN (libvirt does not answer), and those above.
Status attach(const std::string& uri, const std::string& domain, const Attachment& attachment, bool may_run = false);
Status detach(const std::string& uri, const std::string& domain, const Attachment& attachment, bool may_run = false);

// The metadata of a persistent domain on Xen, which may be running. Adding keeps what stands there; nothing to remove
// is no error. Errors: ENOENT (no such domain), ENOTCONN, EINVAL (its metadata is malformed).
Status attach_xen(const std::string& uri, const std::string& domain, const Attachment& attachment);
Status detach_xen(const std::string& uri, const std::string& domain, const Attachment& attachment);

}  // namespace bandsaw::libvirt
