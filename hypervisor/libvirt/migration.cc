#include "hypervisor/libvirt/migration.h"

#include <cerrno>

#include "hypervisor/libvirt/connection.h"

namespace bandsaw::libvirt {
namespace {

// What libvirt takes, as a list of its own; it has what it was given.
class Parameters {
 public:
  ~Parameters() { virTypedParamsFree(list_, count_); }
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  bool add(const char* name, const std::string& value) {
    return virTypedParamsAddString(&list_, &count_, &room_, name, value.c_str()) == 0;
  }
  virTypedParameterPtr list() const { return list_; }
  unsigned count() const { return static_cast<unsigned>(count_); }

 private:
  virTypedParameterPtr list_ = nullptr;
  int count_ = 0, room_ = 0;
};

}  // namespace

Status migrate(const MigrationWay& way, const std::string& name) {
  const auto from = open_connection(way.from);
  if (!from.ok()) return from.status();
  const auto to = open_connection(way.to);
  if (!to.ok()) return to.status();
  const auto domain = find_domain(from.value(), name);
  if (!domain.ok()) return domain.status();
  Parameters parameters;
  if (!way.data.empty() && !parameters.add(VIR_MIGRATE_PARAM_URI, way.data))
    return Status::error(EIO, "{}", last_error());
  unsigned flags = VIR_MIGRATE_LIVE;
  if (virDomainIsPersistent(domain.value().get()) == 1) flags |= VIR_MIGRATE_PERSIST_DEST;
  const Domain there(
      virDomainMigrate3(domain.value().get(), to.value().get(), parameters.list(), parameters.count(), flags),
      &virDomainFree);
  if (!there) return Status::error(EIO, "libvirt does not migrate domain '{}': {}", name, last_error());
  return {};
}

Status undefine(const std::string& uri, const std::string& name) {
  const auto connection = open_connection(uri);
  if (!connection.ok()) return connection.status();
  const auto domain = find_domain(connection.value(), name);
  if (domain.status().code() == ENOENT) return {};
  if (!domain.ok()) return domain.status();
  if (virDomainIsActive(domain.value().get()) == 1) return Status::error(EBUSY, "domain '{}' runs here", name);
  if (virDomainUndefine(domain.value().get()) < 0) return Status::error(EIO, "{}", last_error());
  return {};
}

}  // namespace bandsaw::libvirt
