#include "tools/vgpuctl/domain_shares.h"

#include <fmt/format.h>

#include <cstdlib>

#include "backend/control/vgpu_spec.h"
#include "tools/vgpuctl/commands.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#endif

namespace bandsaw::ctl {

using nlohmann::json;

Refusal libvirt_refusal(const Status& status, const Options& options, const std::string& domain) {
  switch (status.code()) {
    case EBUSY:
      return {
          kRefused, status.message(),
          fmt::format("`virsh shutdown {}`, then again; or add --live, if the domain has a free PCI Express root port",
                      domain)};
    case ENOTSUP:
      return {kRefused, status.message(), fmt::format("`virsh shutdown {}`, then again without --live", domain)};
    case ENODEV:
      return {kRefused, status.message(), "`virsh edit` adds it; without --live the root port is not needed"};
    case ENOENT:
      return {kNotFound, status.message(), "`virsh list --all` shows the domains"};
    case ENOTCONN:
      return {kRefused, status.message(),
              "start libvirt (`systemctl start libvirtd`), name its URI with --connect, or paste what "
              "`vgpuctl xml` prints and use --record-only"};
    case EPROTONOSUPPORT:
      return {kRefused, fmt::format("domain '{}': {}", domain, status.message()),
              fmt::format("`virsh edit {}`", domain)};
    case EINVAL:
      return {kRefused, fmt::format("domain '{}': {}", domain, status.message()),
              fmt::format("repair its <metadata> with `virsh edit {}`; `vgpuctl xml {}` prints how it should be",
                          domain, options.name)};
    default:
      return {kRefused, status.message(), fmt::format("`vgpuctl xml {}` prints what is to be added", options.name)};
  }
}

std::string xen_uri(const Options& options) {
  if (!options.uri.empty() || std::getenv("LIBVIRT_DEFAULT_URI")) return options.uri;
  return "xen:///system";
}

#ifdef BANDSAW_WITH_LIBVIRT

void follow_in_domain(const Options& options, const json& changed, const json& view) {
  const auto domain = view.value("domain", "");
  const ShareTexts shares = share_texts(changed);
  if (domain.empty() || shares.empty() || options.record_only) return;
  const bool on_xen =
      view.contains("live") && view["live"].is_object() && view["live"].value("xen", json()).is_object();
  const std::string uri = on_xen ? xen_uri(options) : options.uri;
  const Status status = libvirt::set_shares(uri, domain, {options.name, shares});
  if (status.ok() || status.code() == ENOENT) return;  // without an element there is nothing to follow
  if (on_xen && status.code() == ENOTCONN) return;     // xl's hosts have no libvirt
  fmt::print(stderr,
             "vgpuctl: the shares are set, but the metadata of domain '{}' is as it was: {}\n"
             "  its next start brings back what stands there; `virsh edit {}` changes it\n",
             domain, status.message(), domain);
}

std::optional<Refusal> take_from_domain(const Options& options, bool* set) {
  const auto xml = libvirt::domain_xml(options.uri, options.domain);
  if (!xml.ok()) return libvirt_refusal(xml.status(), options, options.domain);
  const auto vgpus = libvirt::read_metadata(xml.value());
  if (!vgpus.ok()) return libvirt_refusal(vgpus.status(), options, options.domain);
  for (const libvirt::DomainVgpu& vgpu : vgpus.value()) {
    if (vgpu.vgpu != options.name || vgpu.shares.empty()) continue;
    const auto shares = read_share_texts(vgpu.shares);
    if (!shares.ok()) return libvirt_refusal(shares.status(), options, options.domain);
    const Reply reply = call(options, "PATCH", vgpu_target(options), shares.value());
    if (const Refusal* refusal = std::get_if<Refusal>(&reply)) {
      return Refusal{refusal->exit, fmt::format("the metadata of domain '{}': {}", options.domain, refusal->error),
                     refusal->hint};
    }
    *set = true;
  }
  return std::nullopt;
}

#else

void follow_in_domain(const Options&, const json&, const json&) {}
std::optional<Refusal> take_from_domain(const Options&, bool*) { return std::nullopt; }

#endif

}  // namespace bandsaw::ctl
