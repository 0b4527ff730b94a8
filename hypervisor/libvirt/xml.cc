// Editing a domain's XML text with libxml2.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "hypervisor/libvirt/domain.h"
#include "hypervisor/libvirt/metadata.h"
#include "hypervisor/libvirt/xml_tree.h"

namespace bandsaw::libvirt {

using namespace xml;

namespace {

constexpr const char* kQemuNamespace = "http://libvirt.org/schemas/domain/qemu/1.0";
// QEMU's q35 leaves slots 0x10 up free when libvirt places its own devices from 1 on.
constexpr int kFirstSlot = 0x10, kLastSlot = 0x1d;

std::string device_argument(const Attachment& attachment, int slot) {
  return fmt::format(
      R"({{"driver":"vfio-user-pci","id":"bandsaw-{}","bus":"pcie.0","addr":"{:#x}","socket":{{"type":"unix","path":"{}"}}}})",
      attachment.vgpu, slot, attachment.socket);
}

bool is_device_of(const std::string& argument, const Attachment& attachment) {
  return argument.find("\"vfio-user-pci\"") != std::string::npos &&
         argument.find(fmt::format("\"id\":\"bandsaw-{}\"", attachment.vgpu)) != std::string::npos;
}

// The session maps guest RAM, so it must be memory with a descriptor that is shared.
void share_memory(xmlNode* root) {
  xmlNode* backing = child_or_new(root, "memoryBacking");
  xmlSetProp(child_or_new(backing, "source"), x("type"), x("memfd"));
  xmlSetProp(child_or_new(backing, "access"), x("mode"), x("shared"));
}

xmlNs* qemu_namespace(xmlNode* root) {
  if (xmlNs* ns = xmlSearchNsByHref(root->doc, root, x(kQemuNamespace))) return ns;
  if (xmlNs* ns = xmlNewNs(root, x(kQemuNamespace), x("qemu"))) return ns;
  // The prefix means something else in this domain.
  for (int i = 1;; ++i) {
    if (xmlNs* ns = xmlNewNs(root, x(kQemuNamespace), x(fmt::format("qemu{}", i)))) return ns;
  }
}

std::vector<xmlNode*> arguments(xmlNode* root) {
  std::vector<xmlNode*> result;
  if (xmlNode* line = child(root, "commandline", kQemuNamespace))
    for (xmlNode* node = line->children; node; node = node->next)
      if (is_named(node, "arg", kQemuNamespace)) result.push_back(node);
  return result;
}

long number(xmlNode* node, const char* name) { return std::strtol(attribute(node, name).c_str(), nullptr, 0); }

// Whether an element below `node` says that it is in this slot of the first bus.
bool has_address(xmlNode* node, int slot) {
  for (; node; node = node->next) {
    if (node->type != XML_ELEMENT_NODE) continue;
    const bool here = is_named(node, "address") && attribute(node, "type") == "pci" && number(node, "domain") == 0 &&
                      number(node, "bus") == 0 && number(node, "slot") == slot;
    if (here || has_address(node->children, slot)) return true;
  }
  return false;
}

int free_slot(xmlNode* root) {
  for (int slot = kFirstSlot; slot <= kLastSlot; ++slot) {
    const std::string wanted = fmt::format("\"addr\":\"{:#x}\"", slot);
    const auto args = arguments(root);
    if (std::none_of(args.begin(), args.end(),
                     [&](xmlNode* arg) { return attribute(arg, "value").find(wanted) != std::string::npos; }) &&
        !has_address(root->children, slot))
      return slot;
  }
  return -1;
}

// The device is one of PCI Express, which machines of the type `pc` have not.
Status check_machine(xmlNode* root) {
  xmlNode* const os = child(root, "os");
  xmlNode* const type = os ? child(os, "type") : nullptr;
  const std::string machine = type ? attribute(type, "machine") : "";
  if (machine != "pc" && !machine.starts_with("pc-i440fx")) return {};
  return Status::error(
      EPROTONOSUPPORT,
      "the domain's machine is '{}', which has no PCI Express: define it with machine='q35' in <os><type>", machine);
}

void add_argument(xmlNode* line, xmlNs* ns, const std::string& value) {
  xmlSetProp(xmlNewChild(line, ns, x("arg"), nullptr), x("value"), x(value));
}

bool remove_arguments(xmlNode* root, const Attachment& attachment) {
  const auto args = arguments(root);
  bool found = false;
  for (size_t i = 1; i < args.size(); ++i) {
    if (!is_device_of(attribute(args[i], "value"), attachment) || attribute(args[i - 1], "value") != "-device")
      continue;
    remove(args[i - 1]);
    remove(args[i]);
    found = true;
    ++i;
  }
  if (xmlNode* line = child(root, "commandline", kQemuNamespace); line && arguments(root).empty()) remove(line);
  return found;
}

std::string metadata_snippet(const Attachment& attachment) {
  std::string shares;
  for (const auto& [name, value] : attachment.shares) shares += fmt::format(" {}='{}'", name, value);
  return fmt::format(R"(  <metadata>
    <bandsaw:vgpus xmlns:bandsaw='{}'>
      <bandsaw:vgpu name='{}'{}/>
    </bandsaw:vgpus>
  </metadata>
)",
                     kMetadataNamespace, attachment.vgpu, shares);
}

}  // namespace

std::string domain_snippet(const Attachment& attachment) {
  return fmt::format(R"(<domain type='kvm' xmlns:qemu='{}'>
  <!-- ... the domain's own elements ... -->
{}  <memoryBacking>
    <source type='memfd'/>
    <access mode='shared'/>
  </memoryBacking>
  <qemu:commandline>
    <qemu:arg value='-device'/>
    <qemu:arg value='{}'/>
  </qemu:commandline>
</domain>
)",
                     kQemuNamespace, metadata_snippet(attachment), device_argument(attachment, kFirstSlot));
}

std::string xen_domain_snippet(const Attachment& attachment) {
  return fmt::format(R"(<domain type='xen'>
  <!-- ... the domain's own elements ... -->
{}  <!-- For more than 128 MiB of pinned memory, if Xen's command line has gnttab_max_frames=256:
  <devices>
    <controller type='xenbus' maxGrantFrames='256'/>
  </devices> -->
</domain>
)",
                     metadata_snippet(attachment));
}

Result<std::string> add_to_xml(const std::string& domain_xml, const Attachment& attachment) {
  const Document document = parse(domain_xml);
  xmlNode* root = domain_root(document);
  if (!root) return Status::error(EINVAL, "the text is not a libvirt domain");
  for (xmlNode* arg : arguments(root))
    if (is_device_of(attribute(arg, "value"), attachment))
      return Status::error(EEXIST, "virtual GPU '{}' is attached to this domain already", attachment.vgpu);
  if (Status status = check_machine(root); !status.ok()) return status;
  const int slot = free_slot(root);
  if (slot < 0)
    return Status::error(ENOSPC,
                         "the domain's devices have all PCI slots from {:#x} to {:#x}: give one another address",
                         kFirstSlot, kLastSlot);
  if (Status status = xml::add_metadata(root, {attachment.vgpu, attachment.shares}); !status.ok()) return status;
  share_memory(root);
  xmlNs* ns = qemu_namespace(root);
  xmlNode* line = child(root, "commandline", kQemuNamespace);
  if (!line) line = xmlNewChild(root, ns, x("commandline"), nullptr);
  add_argument(line, ns, "-device");
  add_argument(line, ns, device_argument(attachment, slot));
  return print(document);
}

Result<std::string> remove_from_xml(const std::string& domain_xml, const Attachment& attachment) {
  const Document document = parse(domain_xml);
  xmlNode* root = domain_root(document);
  if (!root) return Status::error(EINVAL, "the text is not a libvirt domain");
  if (!remove_arguments(root, attachment))
    return Status::error(ENOENT, "virtual GPU '{}' is not attached to this domain", attachment.vgpu);
  xml::remove_metadata(root, attachment.vgpu);
  return print(document);
}

Result<std::string> add_metadata_to_xml(const std::string& domain_xml, const Attachment& attachment) {
  const Document document = parse(domain_xml);
  xmlNode* root = domain_root(document);
  if (!root) return Status::error(EINVAL, "the text is not a libvirt domain");
  if (Status status = xml::add_metadata(root, {attachment.vgpu, attachment.shares}); !status.ok()) return status;
  return print(document);
}

Result<std::string> remove_metadata_from_xml(const std::string& domain_xml, const Attachment& attachment) {
  const Document document = parse(domain_xml);
  xmlNode* root = domain_root(document);
  if (!root) return Status::error(EINVAL, "the text is not a libvirt domain");
  xml::remove_metadata(root, attachment.vgpu);
  return print(document);
}

}  // namespace bandsaw::libvirt
