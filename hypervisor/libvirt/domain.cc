// Attach and detach through libvirt's C API.
#include "hypervisor/libvirt/domain.h"

#include <cstdlib>
#include <functional>

#include "hypervisor/libvirt/connection.h"

namespace bandsaw::libvirt {
namespace {

constexpr unsigned kInactive = VIR_DOMAIN_XML_INACTIVE | VIR_DOMAIN_XML_SECURE;

using Edit = std::function<Result<std::string>(const std::string&)>;

Status edit_domain(const std::string& uri, const std::string& name, bool may_run, const Edit& edit) {
  const auto connection = open_connection(uri);
  if (!connection.ok()) return connection.status();
  const auto domain = find_domain(connection.value(), name);
  if (!domain.ok()) return domain.status();
  if (!may_run && virDomainIsActive(domain.value().get()) == 1)
    return Status::error(EBUSY, "domain '{}' is running; shut it down first (virsh shutdown {})", name, name);
  if (virDomainIsPersistent(domain.value().get()) != 1)
    return Status::error(EINVAL, "domain '{}' is transient; define it first (virsh define)", name);
  const auto before = definition(domain.value(), name, kInactive);
  if (!before.ok()) return before.status();
  const auto after = edit(before.value());
  if (!after.ok()) return after.status();
  const Domain defined(virDomainDefineXML(connection.value().get(), after.value().c_str()), &virDomainFree);
  if (!defined) return Status::error(EIO, "libvirt refuses the changed domain '{}': {}", name, last_error());
  return {};
}

}  // namespace

Result<std::vector<std::string>> domain_names(const std::string& uri) {
  const auto connection = open_connection(uri);
  if (!connection.ok()) return connection.status();
  virDomainPtr* all = nullptr;
  const int count = virConnectListAllDomains(connection.value().get(), &all, 0);
  if (count < 0) return Status::error(EIO, "cannot list the domains: {}", last_error());
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    const Domain domain(all[i], &virDomainFree);
    names.emplace_back(virDomainGetName(domain.get()));
  }
  std::free(all);
  return names;
}

Result<std::string> domain_xml(const std::string& uri, const std::string& name) {
  const auto connection = open_connection(uri);
  if (!connection.ok()) return connection.status();
  const auto domain = find_domain(connection.value(), name);
  return domain.ok() ? definition(domain.value(), name, kInactive) : domain.status();
}

Status set_shares(const std::string& uri, const std::string& domain, const DomainVgpu& change) {
  return edit_domain(uri, domain, true, [&](const std::string& xml) { return change_metadata(xml, change); });
}

Status attach(const std::string& uri, const std::string& domain, const Attachment& attachment, bool may_run) {
  return edit_domain(uri, domain, may_run, [&](const std::string& xml) { return add_to_xml(xml, attachment); });
}

Status detach(const std::string& uri, const std::string& domain, const Attachment& attachment, bool may_run) {
  return edit_domain(uri, domain, may_run, [&](const std::string& xml) { return remove_from_xml(xml, attachment); });
}

Status attach_xen(const std::string& uri, const std::string& domain, const Attachment& attachment) {
  return edit_domain(uri, domain, true, [&](const std::string& xml) { return add_metadata_to_xml(xml, attachment); });
}

Status detach_xen(const std::string& uri, const std::string& domain, const Attachment& attachment) {
  return edit_domain(uri, domain, true,
                     [&](const std::string& xml) { return remove_metadata_from_xml(xml, attachment); });
}

}  // namespace bandsaw::libvirt
