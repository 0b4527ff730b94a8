// Attach and detach through libvirt's C API.
#include "hypervisor/libvirt/domain.h"

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>

#include <cstdlib>
#include <memory>

namespace bandsaw::libvirt {
namespace {

using Connection = std::unique_ptr<virConnect, decltype(&virConnectClose)>;
using Domain = std::unique_ptr<virDomain, decltype(&virDomainFree)>;

std::string last_error() {
  const virErrorPtr error = virGetLastError();
  return error && error->message ? error->message : "no reason given";
}

Result<Connection> open_connection(const std::string& uri) {
  // libvirt prints errors to stderr unless told otherwise; we report them ourselves.
  virSetErrorFunc(nullptr, [](void*, virErrorPtr) {});
  Connection connection(virConnectOpen(uri.empty() ? nullptr : uri.c_str()), &virConnectClose);
  if (!connection)
    return Status::error(ENOTCONN, "libvirt does not answer ({}); is libvirtd running, and is LIBVIRT_DEFAULT_URI right?",
                         last_error());
  return connection;
}

using Edit = Result<std::string> (*)(const std::string&, const Attachment&);

Status edit_domain(const std::string& uri, const std::string& name, const Attachment& attachment, Edit edit) {
  auto connection = open_connection(uri);
  if (!connection.ok()) return connection.status();
  Domain domain(virDomainLookupByName(connection.value().get(), name.c_str()), &virDomainFree);
  if (!domain) return Status::error(ENOENT, "libvirt has no domain '{}'; see virsh list --all", name);
  if (virDomainIsActive(domain.get()) == 1)
    return Status::error(EBUSY, "domain '{}' is running; shut it down first (virsh shutdown {})", name, name);
  if (virDomainIsPersistent(domain.get()) != 1)
    return Status::error(EINVAL, "domain '{}' is transient; define it first (virsh define)", name);
  char* text = virDomainGetXMLDesc(domain.get(), VIR_DOMAIN_XML_INACTIVE | VIR_DOMAIN_XML_SECURE);
  if (!text) return Status::error(EIO, "cannot read domain '{}': {}", name, last_error());
  const std::string before(text);
  std::free(text);
  auto after = edit(before, attachment);
  if (!after.ok()) return after.status();
  Domain defined(virDomainDefineXML(connection.value().get(), after.value().c_str()), &virDomainFree);
  if (!defined) return Status::error(EIO, "libvirt refuses the changed domain '{}': {}", name, last_error());
  return {};
}

}  // namespace

Status attach(const std::string& uri, const std::string& domain, const Attachment& attachment) {
  return edit_domain(uri, domain, attachment, &add_to_xml);
}

Status detach(const std::string& uri, const std::string& domain, const Attachment& attachment) {
  return edit_domain(uri, domain, attachment, &remove_from_xml);
}

}  // namespace bandsaw::libvirt
