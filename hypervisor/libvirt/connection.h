// What this room's files need of libvirt's C API: a connection, a domain, the reason of its last error.
#pragma once

#include <libvirt/libvirt.h>

#include <memory>
#include <string>

#include "memory/base/status.h"

namespace bandsaw::libvirt {

using Connection = std::unique_ptr<virConnect, decltype(&virConnectClose)>;
using Domain = std::unique_ptr<virDomain, decltype(&virDomainFree)>;

std::string last_error();
// `uri`: empty for libvirt's default. ENOTCONN: nobody answers.
Result<Connection> open_connection(const std::string& uri);
// ENOENT: there is none of this name.
Result<Domain> find_domain(const Connection& connection, const std::string& name);
// `flags`: virDomainXMLFlags.
Result<std::string> definition(const Domain& domain, const std::string& name, unsigned flags);

}  // namespace bandsaw::libvirt
