#include "hypervisor/libvirt/metadata.h"

#include <algorithm>
#include <array>
#include <utility>

namespace bandsaw::libvirt {
namespace xml {
namespace {

constexpr std::array<const char*, 10> kShareNames = {"memory",   "compute",    "copy",    "cap",   "reserve",
                                                     "priority", "latency_us", "sharing", "group", "sms"};

bool is_ours(const xmlNode* node) {
  return node->type == XML_ELEMENT_NODE && node->ns && xmlStrEqual(node->ns->href, x(kMetadataNamespace));
}

// The <vgpu> elements below `parent`. EINVAL: another element of ours.
Status collect(xmlNode* parent, bool may_hold_list, std::vector<xmlNode*>* found) {
  for (xmlNode* node = parent->children; node; node = node->next) {
    if (!is_ours(node)) {
      if (may_hold_list || node->type != XML_ELEMENT_NODE) continue;  // metadata of others
      return Status::error(EINVAL, "<{}> stands among the virtual GPUs in its metadata", text(node->name));
    }
    if (is_named(node, "vgpu")) {
      found->push_back(node);
    } else if (may_hold_list && is_named(node, "vgpus")) {
      if (Status status = collect(node, false, found); !status.ok()) return status;
    } else {
      return Status::error(EINVAL, "its metadata has a <{}> of Bandsaw's namespace, and there are vgpus and vgpu",
                           text(node->name));
    }
  }
  return {};
}

Result<std::vector<xmlNode*>> elements(xmlNode* domain) {
  std::vector<xmlNode*> found;
  xmlNode* metadata = child(domain, "metadata");
  Status status = metadata ? collect(metadata, true, &found) : Status();
  if (!status.ok()) return status;
  return found;
}

Result<DomainVgpu> read_element(xmlNode* node) {
  DomainVgpu result{attribute(node, "name"), {}};
  if (result.vgpu.empty()) return Status::error(EINVAL, "a <vgpu> in its metadata has no name");
  for (const xmlAttr* one = node->properties; one; one = one->next) {
    const std::string name = text(one->name);
    if (one->ns || name == "name") continue;
    if (std::find(kShareNames.begin(), kShareNames.end(), name) == kShareNames.end()) {
      return Status::error(EINVAL, "<vgpu name='{}'> in its metadata has '{}', which is not a share", result.vgpu,
                           name);
    }
    result.shares.emplace_back(name, attribute(node, name.c_str()));
  }
  return result;
}

xmlNode* element_of(const std::vector<xmlNode*>& nodes, const std::string& vgpu) {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](xmlNode* node) { return attribute(node, "name") == vgpu; });
  return found == nodes.end() ? nullptr : *found;
}

// The domain's <bandsaw:vgpus>, made if there is none. Elements that stand alone are moved into it.
xmlNode* list_of(xmlNode* domain, const std::vector<xmlNode*>& nodes) {
  xmlNode* metadata = child_or_new(domain, "metadata");
  xmlNode* list = child(metadata, "vgpus", kMetadataNamespace);
  if (!list) {
    list = xmlNewChild(metadata, nullptr, x("vgpus"), nullptr);
    xmlSetNs(list, xmlNewNs(list, x(kMetadataNamespace), x("bandsaw")));
  }
  for (xmlNode* node : nodes) {
    if (node->parent == list) continue;
    xmlUnlinkNode(node);
    xmlAddChild(list, node);
  }
  return list;
}

}  // namespace

Result<std::vector<DomainVgpu>> read_metadata(xmlNode* domain) {
  const auto nodes = elements(domain);
  if (!nodes.ok()) return nodes.status();
  std::vector<DomainVgpu> result;
  for (xmlNode* node : nodes.value()) {
    auto one = read_element(node);
    if (!one.ok()) return one.status();
    for (const DomainVgpu& other : result) {
      if (other.vgpu == one.value().vgpu) {
        return Status::error(EINVAL, "<vgpu name='{}'> is twice in its metadata", other.vgpu);
      }
    }
    result.push_back(std::move(one.value()));
  }
  return result;
}

Status add_metadata(xmlNode* domain, const DomainVgpu& added) {
  if (const auto before = read_metadata(domain); !before.ok()) return before.status();
  const auto nodes = elements(domain).value();
  xmlNode* list = list_of(domain, nodes);
  xmlNode* node = element_of(nodes, added.vgpu);
  if (!node) {
    node = xmlNewChild(list, list->ns, x("vgpu"), nullptr);
    xmlSetProp(node, x("name"), x(added.vgpu));
  }
  for (const auto& [name, value] : added.shares) {
    if (!xmlHasProp(node, x(name))) xmlSetProp(node, x(name), x(value));
  }
  return {};
}

void remove_metadata(xmlNode* domain, const std::string& vgpu) {
  const auto nodes = elements(domain);
  if (!nodes.ok()) return;  // malformed: its author has to repair it
  if (xmlNode* node = element_of(nodes.value(), vgpu)) remove(node);
  xmlNode* metadata = child(domain, "metadata");
  xmlNode* list = metadata ? child(metadata, "vgpus", kMetadataNamespace) : nullptr;
  if (list && xmlChildElementCount(list) == 0) remove(list);
}

}  // namespace xml

Result<std::vector<DomainVgpu>> read_metadata(const std::string& domain_xml) {
  const xml::Document document = xml::parse(domain_xml);
  xmlNode* root = xml::domain_root(document);
  if (!root) return Status::error(EINVAL, "the text is not a libvirt domain");
  return xml::read_metadata(root);
}

Result<std::string> change_metadata(const std::string& domain_xml, const DomainVgpu& change) {
  const xml::Document document = xml::parse(domain_xml);
  xmlNode* root = xml::domain_root(document);
  if (!root) return Status::error(EINVAL, "the text is not a libvirt domain");
  const auto nodes = xml::elements(root);
  if (!nodes.ok()) return nodes.status();
  xmlNode* node = xml::element_of(nodes.value(), change.vgpu);
  if (!node) return Status::error(ENOENT, "the domain's metadata has no virtual GPU '{}'", change.vgpu);
  for (const auto& [name, value] : change.shares) xmlSetProp(node, xml::x(name), xml::x(value));
  return xml::print(document);
}

}  // namespace bandsaw::libvirt
