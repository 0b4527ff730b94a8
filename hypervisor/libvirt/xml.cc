// Editing a domain's XML text with libxml2.
#include <fmt/format.h>
#include <libxml/parser.h>
#include <libxml/tree.h>

#include <algorithm>
#include <memory>
#include <set>

#include "hypervisor/libvirt/domain.h"

namespace bandsaw::libvirt {
namespace {

constexpr const char* kQemuNamespace = "http://libvirt.org/schemas/domain/qemu/1.0";
// QEMU's q35 leaves slots 0x10 up free when libvirt places its own devices from 1 on.
constexpr int kFirstSlot = 0x10, kLastSlot = 0x1d;

using Document = std::unique_ptr<xmlDoc, decltype(&xmlFreeDoc)>;

const xmlChar* x(const char* text) { return reinterpret_cast<const xmlChar*>(text); }
const xmlChar* x(const std::string& text) { return x(text.c_str()); }

bool is_named(const xmlNode* node, const char* name, const char* ns = nullptr) {
  if (node->type != XML_ELEMENT_NODE || !xmlStrEqual(node->name, x(name))) return false;
  return ns == nullptr || (node->ns && xmlStrEqual(node->ns->href, x(ns)));
}

xmlNode* child(xmlNode* parent, const char* name, const char* ns = nullptr) {
  for (xmlNode* node = parent->children; node; node = node->next)
    if (is_named(node, name, ns)) return node;
  return nullptr;
}

xmlNode* child_or_new(xmlNode* parent, const char* name) {
  if (xmlNode* node = child(parent, name)) return node;
  return xmlNewChild(parent, nullptr, x(name), nullptr);
}

std::string attribute(xmlNode* node, const char* name) {
  std::unique_ptr<xmlChar, decltype(xmlFree)> value(xmlGetProp(node, x(name)), xmlFree);
  return value ? reinterpret_cast<const char*>(value.get()) : "";
}

std::string device_argument(const Attachment& attachment, int slot) {
  return fmt::format(
      R"({{"driver":"vfio-user-pci","id":"bandsaw-{}","bus":"pcie.0","addr":"{:#x}","socket":{{"type":"unix","path":"{}"}}}})",
      attachment.vgpu, slot, attachment.socket);
}

bool is_device_of(const std::string& argument, const Attachment& attachment) {
  return argument.find("\"vfio-user-pci\"") != std::string::npos &&
         argument.find(fmt::format("\"id\":\"bandsaw-{}\"", attachment.vgpu)) != std::string::npos;
}

Document parse(const std::string& text) {
  return Document(xmlReadMemory(text.data(), static_cast<int>(text.size()), "domain.xml", nullptr,
                                XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING),
                  &xmlFreeDoc);
}

std::string print(const Document& document) {
  xmlChar* text = nullptr;
  int bytes = 0;
  xmlDocDumpFormatMemory(document.get(), &text, &bytes, 1);
  std::string result(reinterpret_cast<const char*>(text), static_cast<size_t>(bytes));
  xmlFree(text);
  return result;
}

xmlNode* domain_root(const Document& document) {
  xmlNode* root = document ? xmlDocGetRootElement(document.get()) : nullptr;
  return root && is_named(root, "domain") ? root : nullptr;
}

// The session maps guest RAM, so it must be memory with a descriptor that is shared.
void share_memory(xmlNode* root) {
  xmlNode* backing = child_or_new(root, "memoryBacking");
  xmlSetProp(child_or_new(backing, "source"), x("type"), x("memfd"));
  xmlSetProp(child_or_new(backing, "access"), x("mode"), x("shared"));
}

xmlNs* qemu_namespace(xmlNode* root) {
  if (xmlNs* ns = xmlSearchNsByHref(root->doc, root, x(kQemuNamespace))) return ns;
  return xmlNewNs(root, x(kQemuNamespace), x("qemu"));
}

std::vector<xmlNode*> arguments(xmlNode* root) {
  std::vector<xmlNode*> result;
  if (xmlNode* line = child(root, "commandline", kQemuNamespace))
    for (xmlNode* node = line->children; node; node = node->next)
      if (is_named(node, "arg", kQemuNamespace)) result.push_back(node);
  return result;
}

int free_slot(xmlNode* root) {
  for (int slot = kFirstSlot; slot <= kLastSlot; ++slot) {
    const std::string wanted = fmt::format("\"addr\":\"{:#x}\"", slot);
    const auto args = arguments(root);
    if (std::none_of(args.begin(), args.end(),
                     [&](xmlNode* arg) { return attribute(arg, "value").find(wanted) != std::string::npos; }))
      return slot;
  }
  return -1;
}

void add_argument(xmlNode* line, xmlNs* ns, const std::string& value) {
  xmlSetProp(xmlNewChild(line, ns, x("arg"), nullptr), x("value"), x(value));
}

void add_metadata(xmlNode* root, const Attachment& attachment) {
  xmlNode* metadata = child_or_new(root, "metadata");
  xmlNode* element = xmlNewChild(metadata, nullptr, x("vgpu"), nullptr);
  xmlSetNs(element, xmlNewNs(element, x(kMetadataNamespace), x("bandsaw")));
  xmlSetProp(element, x("name"), x(attachment.vgpu));
}

void remove(xmlNode* node) {
  xmlUnlinkNode(node);
  xmlFreeNode(node);
}

bool remove_arguments(xmlNode* root, const Attachment& attachment) {
  const auto args = arguments(root);
  bool found = false;
  for (size_t i = 1; i < args.size(); ++i) {
    if (!is_device_of(attribute(args[i], "value"), attachment) || attribute(args[i - 1], "value") != "-device") continue;
    remove(args[i - 1]);
    remove(args[i]);
    found = true;
    ++i;
  }
  if (xmlNode* line = child(root, "commandline", kQemuNamespace); line && arguments(root).empty()) remove(line);
  return found;
}

void remove_metadata(xmlNode* root, const Attachment& attachment) {
  xmlNode* metadata = child(root, "metadata");
  if (!metadata) return;
  for (xmlNode* node = metadata->children; node;) {
    xmlNode* next = node->next;
    if (is_named(node, "vgpu", kMetadataNamespace) && attribute(node, "name") == attachment.vgpu) remove(node);
    node = next;
  }
}

}  // namespace

std::string domain_snippet(const Attachment& attachment) {
  return fmt::format(R"(<domain type='kvm' xmlns:qemu='{}'>
  <!-- ... the domain's own elements ... -->
  <metadata>
    <bandsaw:vgpu xmlns:bandsaw='{}' name='{}'/>
  </metadata>
  <memoryBacking>
    <source type='memfd'/>
    <access mode='shared'/>
  </memoryBacking>
  <qemu:commandline>
    <qemu:arg value='-device'/>
    <qemu:arg value='{}'/>
  </qemu:commandline>
</domain>
)",
                     kQemuNamespace, kMetadataNamespace, attachment.vgpu, device_argument(attachment, kFirstSlot));
}

Result<std::string> add_to_xml(const std::string& domain_xml, const Attachment& attachment) {
  const Document document = parse(domain_xml);
  xmlNode* root = domain_root(document);
  if (!root) return Status::error(EINVAL, "the text is not a libvirt domain");
  for (xmlNode* arg : arguments(root))
    if (is_device_of(attribute(arg, "value"), attachment))
      return Status::error(EEXIST, "virtual GPU '{}' is attached to this domain already", attachment.vgpu);
  const int slot = free_slot(root);
  if (slot < 0) return Status::error(ENOSPC, "the domain has {} virtual GPUs, no PCI slot is left", kLastSlot - kFirstSlot + 1);
  share_memory(root);
  add_metadata(root, attachment);
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
  remove_metadata(root, attachment);
  return print(document);
}

}  // namespace bandsaw::libvirt
