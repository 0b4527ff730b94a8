// xml: what to paste into the definition of a domain, by whose tools it starts.
#include <fmt/format.h>

#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#endif

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

// xl knows its own kinds of devices only, so that its configuration has nothing to say of a virtual GPU but limits.
std::string xl_text(const json& view) {
  return fmt::format(R"(# Once, in dom0; the domain then has it whenever it starts:
#   vgpuctl attach {} DOMAIN --hypervisor xen
# For more than 128 MiB of pinned memory, if Xen's command line has gnttab_max_frames=256:
# max_grant_frames = 256
)",
                     view.value("name", ""));
}

#ifdef BANDSAW_WITH_LIBVIRT
Reply libvirt_text(const json& view) {
  return json(libvirt::xen_domain_snippet({.vgpu = view.value("name", ""), .socket = "", .shares = share_texts(view)}));
}
#else
Reply libvirt_text(const json&) {
  return Refusal{kRefused, "this vgpuctl was built without libvirt",
                 "build with libvirt-dev and libxml2-dev installed, or ask for a configuration of xl's with --xl"};
}
#endif

// vgpud writes the text of a QEMU domain, because it alone knows the socket.
Reply text_of(const Options& options) {
  if (options.hypervisor != "xen") return call(options, "GET", vgpu_target(options, "xml"));
  Reply view = call(options, "GET", vgpu_target(options));
  if (std::holds_alternative<Refusal>(view)) return view;
  return options.xl ? Reply(json(xl_text(std::get<json>(view)))) : libvirt_text(std::get<json>(view));
}

}  // namespace

int xml(const Options& options) {
  if (options.xl && options.hypervisor != "xen") {
    return print_refusal({kUsage, "xl is Xen's", "give --hypervisor xen with --xl"}, options.json);
  }
  const Reply reply = text_of(options);
  if (const Refusal* refusal = std::get_if<Refusal>(&reply)) return print_refusal(*refusal, options.json);
  const auto text = std::get<json>(reply).get<std::string>();
  fmt::print("{}\n", options.json ? json_text(json{{"name", options.name}, {"xml", text}}, 2) : text);
  return kOk;
}

}  // namespace bandsaw::ctl
