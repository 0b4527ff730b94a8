// A domain's definition, as whoever may define domains writes it: vgpuctl and libvirt's hook read it as root. What must
// hold: a definition is refused or changed, what was added is read back, and what was taken out is gone.
#include <cstdlib>
#include <string>

#include "hypervisor/libvirt/domain.h"

namespace {

using namespace bandsaw;
using namespace bandsaw::libvirt;

void check(bool holds) {
  if (!holds) std::abort();
}

bool has(const std::string& xml, const std::string& vgpu) {
  const auto read = read_metadata(xml);
  check(read.ok());  // its metadata was in order before the change
  for (const DomainVgpu& one : read.value()) {
    if (one.vgpu == vgpu) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string xml(reinterpret_cast<const char*>(data), size);
  const Attachment web{"fuzz-web0", "/run/bandsaw/fuzz-web0/vfio.sock", {{"memory", "8G"}, {"compute", "30"}}};
  const auto read = read_metadata(xml);
  if (!read.ok()) check(!read.status().message().empty());
  const auto added = add_to_xml(xml, web);
  if (!added.ok()) check(!added.status().message().empty());
  if (added.ok()) {
    check(read.ok() && has(added.value(), web.vgpu));
    check(add_to_xml(added.value(), web).status().code() == EEXIST);
    check(change_metadata(added.value(), {web.vgpu, {{"compute", "31"}}}).ok());
    const auto removed = remove_from_xml(added.value(), web);
    check(removed.ok() && !has(removed.value(), web.vgpu));
    check(remove_from_xml(removed.value(), web).status().code() == ENOENT);
  }
  if (const auto on_xen = add_metadata_to_xml(xml, web); on_xen.ok()) {
    check(has(on_xen.value(), web.vgpu));
    check(!has(remove_metadata_from_xml(on_xen.value(), web).value(), web.vgpu));
  }
  return 0;
}
