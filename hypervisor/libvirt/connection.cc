#include "hypervisor/libvirt/connection.h"

#include <libvirt/virterror.h>

#include <cstdlib>

namespace bandsaw::libvirt {

std::string last_error() {
  const virErrorPtr error = virGetLastError();
  return error && error->message ? error->message : "no reason given";
}

Result<Connection> open_connection(const std::string& uri) {
  // libvirt prints errors to stderr unless told otherwise; we report them ourselves.
  virSetErrorFunc(nullptr, [](void*, virErrorPtr) {});
  Connection connection(virConnectOpen(uri.empty() ? nullptr : uri.c_str()), &virConnectClose);
  if (!connection)
    return Status::error(
        ENOTCONN, "libvirt does not answer ({}); is libvirtd running, and is LIBVIRT_DEFAULT_URI right?", last_error());
  return connection;
}

Result<Domain> find_domain(const Connection& connection, const std::string& name) {
  Domain domain(virDomainLookupByName(connection.get(), name.c_str()), &virDomainFree);
  if (!domain) return Status::error(ENOENT, "libvirt has no domain '{}'; see virsh list --all", name);
  return domain;
}

Result<std::string> definition(const Domain& domain, const std::string& name, unsigned flags) {
  char* text = virDomainGetXMLDesc(domain.get(), flags);
  if (!text) return Status::error(EIO, "cannot read domain '{}': {}", name, last_error());
  const std::string result(text);
  std::free(text);
  return result;
}

}  // namespace bandsaw::libvirt
