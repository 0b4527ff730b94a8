// Small helpers over libxml2's tree, for the files of this folder.
#pragma once

#include <libxml/parser.h>
#include <libxml/tree.h>

#include <memory>
#include <string>

namespace bandsaw::libvirt::xml {

using Document = std::unique_ptr<xmlDoc, decltype(&xmlFreeDoc)>;

// Null: the text is not XML, or has a prefix that it does not declare. Loads nothing from elsewhere.
Document parse(const std::string& text);
std::string print(const Document& document);
// Null: there is no document, or it is not a <domain>.
xmlNode* domain_root(const Document& document);

inline const xmlChar* x(const char* text) { return reinterpret_cast<const xmlChar*>(text); }
inline const xmlChar* x(const std::string& text) { return x(text.c_str()); }
inline std::string text(const xmlChar* from) { return from ? reinterpret_cast<const char*>(from) : ""; }

bool is_named(const xmlNode* node, const char* name, const char* ns = nullptr);
xmlNode* child(xmlNode* parent, const char* name, const char* ns = nullptr);
xmlNode* child_or_new(xmlNode* parent, const char* name);
std::string attribute(xmlNode* node, const char* name);  // empty: not there
void remove(xmlNode* node);

}  // namespace bandsaw::libvirt::xml
