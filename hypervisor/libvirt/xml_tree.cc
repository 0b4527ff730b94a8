#include "hypervisor/libvirt/xml_tree.h"

namespace bandsaw::libvirt::xml {

Document parse(const std::string& content) {
  const std::unique_ptr<xmlParserCtxt, decltype(&xmlFreeParserCtxt)> parser(xmlNewParserCtxt(), &xmlFreeParserCtxt);
  Document document(xmlCtxtReadMemory(parser.get(), content.data(), static_cast<int>(content.size()), "domain.xml",
                                      nullptr, XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING),
                    &xmlFreeDoc);
  // A prefix without a namespace would get the one that is added for it.
  if (document && !parser->nsWellFormed) document.reset();
  return document;
}

std::string print(const Document& document) {
  xmlChar* content = nullptr;
  int bytes = 0;
  xmlDocDumpFormatMemory(document.get(), &content, &bytes, 1);
  std::string result(reinterpret_cast<const char*>(content), static_cast<size_t>(bytes));
  xmlFree(content);
  return result;
}

xmlNode* domain_root(const Document& document) {
  xmlNode* root = document ? xmlDocGetRootElement(document.get()) : nullptr;
  return root && is_named(root, "domain") ? root : nullptr;
}

bool is_named(const xmlNode* node, const char* name, const char* ns) {
  if (node->type != XML_ELEMENT_NODE || !xmlStrEqual(node->name, x(name))) return false;
  return ns == nullptr || (node->ns && xmlStrEqual(node->ns->href, x(ns)));
}

xmlNode* child(xmlNode* parent, const char* name, const char* ns) {
  for (xmlNode* node = parent->children; node; node = node->next)
    if (is_named(node, name, ns)) return node;
  return nullptr;
}

xmlNode* child_or_new(xmlNode* parent, const char* name) {
  if (xmlNode* node = child(parent, name)) return node;
  return xmlNewChild(parent, nullptr, x(name), nullptr);
}

std::string attribute(xmlNode* node, const char* name) {
  const std::unique_ptr<xmlChar, decltype(xmlFree)> value(xmlGetProp(node, x(name)), xmlFree);
  return text(value.get());
}

void remove(xmlNode* node) {
  xmlUnlinkNode(node);
  xmlFreeNode(node);
}

}  // namespace bandsaw::libvirt::xml
