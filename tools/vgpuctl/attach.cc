// attach and detach: vgpud keeps the record, libvirt the domain's definition, or xenstore the running domain's device;
// both change or neither. A domain on Xen may be libvirt's too: its definition follows.
#include <fmt/format.h>

#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "memory/base/status.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/domain_shares.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#include "hypervisor/libvirt/live.h"
#endif
#ifdef BANDSAW_WITH_XEN
#include "hypervisor/xen/toolstack.h"
#endif

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

#ifdef BANDSAW_WITH_XEN
Status change_store(bool add, const Options& options, const std::string& domain) {
  return add ? xen::attach(domain, options.name) : xen::detach(domain, options.name);
}
#else
Status change_store(bool, const Options&, const std::string&) {
  return Status::error(ENOTCONN, "this vgpuctl was built without libxenstore");
}
#endif

#ifdef BANDSAW_WITH_LIBVIRT
libvirt::Attachment attachment(const json& view) {
  return {.vgpu = view.value("name", ""), .socket = view["sockets"].value("vfio", ""), .shares = share_texts(view)};
}
// The definition for the domain's next start and, with --live, the domain that runs: both or neither.
Status add_to_libvirt(const Options& options, const std::string& domain, const json& view, bool* live) {
  const libvirt::Attachment attached = attachment(view);
  const Status defined = libvirt::attach(options.uri, domain, attached, options.live);
  if (!options.live || (!defined.ok() && defined.code() != EEXIST)) return defined;
  libvirt::Attachment live_one = attached;
  live_one.socket = view["sockets"].value("vfio_live", "");
  const Status plugged = libvirt::plug(options.uri, domain, live_one);
  if (plugged.code() == ESHUTDOWN) return defined;
  if (!plugged.ok() && defined.ok()) (void)libvirt::detach(options.uri, domain, attached, true);
  *live = plugged.ok();
  return plugged;
}
Status remove_from_libvirt(const Options& options, const std::string& domain, const json& view) {
  if (options.live) {
    const Status unplugged = libvirt::unplug(options.uri, domain, options.name);
    const bool absent = unplugged.code() == ENOENT || unplugged.code() == ESHUTDOWN;
    if (!unplugged.ok() && !absent) return unplugged;
  }
  return libvirt::detach(options.uri, domain, attachment(view), options.live);
}
Status change_libvirt(bool add, const Options& options, const std::string& domain, const json& view, bool* live) {
  return add ? add_to_libvirt(options, domain, view, live) : remove_from_libvirt(options, domain, view);
}
// A domain of xl's alone has no metadata: without --connect it need not be libvirt's.
Status change_metadata(bool add, const Options& options, const std::string& domain, const json& view) {
  const Status status = add ? libvirt::attach_xen(xen_uri(options), domain, attachment(view))
                            : libvirt::detach_xen(xen_uri(options), domain, attachment(view));
  const bool not_its_own = status.code() == ENOTCONN || status.code() == ENOENT || status.code() == EINVAL;
  return options.uri.empty() && not_its_own ? Status() : status;
}
#else
Status change_libvirt(bool, const Options&, const std::string&, const json&, bool*) {
  return Status::error(ENOTCONN, "this vgpuctl was built without libvirt");
}
Status change_metadata(bool, const Options&, const std::string&, const json&) { return {}; }
#endif

Status change_xen(bool add, const Options& options, const std::string& domain, const json& view) {
  if (Status status = change_metadata(add, options, domain, view); !status.ok()) {
    return Status::error(EIO, "the domain's definition is as it was: {}", status.message());
  }
  return change_store(add, options, domain);
}

// `live`: becomes true where a domain that runs has it now.
Status change_domain(bool add, const Options& options, const std::string& domain, const json& view, bool* live) {
  return options.hypervisor == "xen" ? change_xen(add, options, domain, view)
                                     : change_libvirt(add, options, domain, view, live);
}

int print_unchanged(const Status& status, const Options& options, const std::string& domain) {
  const Refusal refusal = options.hypervisor == "xen" ? Refusal{kRefused, status.message(), "look at `xl list`"}
                                                      : libvirt_refusal(status, options, domain);
  return print_refusal(refusal, options.json);
}

int print_done(const Options& options, const Reply& reply, const std::string& text) {
  if (const Refusal* refusal = std::get_if<Refusal>(&reply)) return print_refusal(*refusal, options.json);
  if (options.json) {
    fmt::print("{}\n", json_text(std::get<json>(reply), 2));
  } else {
    fmt::print("{}\n", text);
  }
  return kOk;
}

}  // namespace

int attach(const Options& options) {
  const Reply before = call(options, "GET", vgpu_target(options));
  if (const Refusal* refusal = std::get_if<Refusal>(&before)) return print_refusal(*refusal, options.json);
  const json& view = std::get<json>(before);
  const bool recorded = view.value("domain", "") == options.domain;
  bool set = false;
  // Attached elsewhere: refused below, before anything of this domain counts.
  if (options.hypervisor != "xen" && !options.record_only && (recorded || view.value("domain", "").empty())) {
    if (const auto refusal = take_from_domain(options, &set)) return print_refusal(*refusal, options.json);
  }
  const Reply record = call(options, "POST", vgpu_target(options, "attach"), {{"domain", options.domain}});
  if (const Refusal* refusal = std::get_if<Refusal>(&record)) return print_refusal(*refusal, options.json);
  std::string done =
      fmt::format("attached {} to domain {}; it is there from the domain's next start", options.name, options.domain);
  if (set) done += "\nthe shares in the domain's metadata are set: " + shares_line(std::get<json>(record));
  if (options.record_only) return print_done(options, record, done);
  bool live = false;
  const Status status = change_domain(true, options, options.domain, std::get<json>(record), &live);
  if (options.hypervisor == "xen") {
    // One that does not run gets it from the session when it starts.
    if (status.code() == ENOENT) return print_done(options, record, done);
    live = true;
  }
  if (live) done = fmt::format("attached {} to domain {}; it is there now", options.name, options.domain);
  if (status.ok() || status.code() == EEXIST) return print_done(options, record, done);
  if (!recorded) (void)call(options, "POST", vgpu_target(options, "detach"));
  if (set) (void)call(options, "PATCH", vgpu_target(options), read_share_texts(share_texts(view)).value());
  return print_unchanged(status, options, options.domain);
}

namespace {

// What a domain's definition still has of a virtual GPU that was destroyed: without it the domain starts again.
int detach_remains(const Options& options, const Refusal& not_found) {
  const Status status = options.record_only
                            ? Status::error(ENOENT, "")
                            : change_domain(false, options, options.domain,
                                            json{{"name", options.name}, {"sockets", json::object()}}, nullptr);
  if (status.code() == ENOENT) return print_refusal(not_found, options.json);
  if (!status.ok()) return print_unchanged(status, options, options.domain);
  return print_done(
      options, json{{"name", options.name}, {"domain", ""}},
      fmt::format("detached {}, which vgpud does not know, from domain {}", options.name, options.domain));
}

}  // namespace

int detach(const Options& options) {
  const Reply reply = call(options, "GET", vgpu_target(options));
  if (const Refusal* refusal = std::get_if<Refusal>(&reply)) {
    return refusal->exit == kNotFound && !options.domain.empty() ? detach_remains(options, *refusal)
                                                                 : print_refusal(*refusal, options.json);
  }
  const json& view = std::get<json>(reply);
  const auto recorded = view.value("domain", "");
  const std::string domain = options.domain.empty() ? recorded : options.domain;
  if (domain.empty()) {
    return print_refusal({kRefused, fmt::format("'{}' is attached to no domain", options.name),
                          "name the domain if its definition still has the virtual GPU"},
                         options.json);
  }
  if (!recorded.empty() && recorded != domain) {
    return print_refusal(
        {kRefused, fmt::format("'{}' is attached to domain '{}', not '{}'", options.name, recorded, domain),
         fmt::format("`vgpuctl detach {} {}`", options.name, recorded)},
        options.json);
  }
  if (!options.record_only) {
    const Status status = change_domain(false, options, domain, view, nullptr);
    // A domain that is gone, or no longer has it, needs nothing but the record cleared.
    const bool cleared = status.code() == ENOENT && !recorded.empty();
    if (!status.ok() && !cleared) return print_unchanged(status, options, domain);
    if (cleared && !options.json) fmt::print(stderr, "vgpuctl: {}; the record is cleared\n", status.message());
  }
  return print_done(options, call(options, "POST", vgpu_target(options, "detach")),
                    fmt::format("detached {} from domain {}", options.name, domain));
}

}  // namespace bandsaw::ctl
