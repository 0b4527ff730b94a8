#include "hypervisor/xen/grants.h"

#include <algorithm>

#include "guest-driver/uapi/vgpu_xen.h"

namespace bandsaw::xen {
namespace {

Status read_refs(Grants& grants, uint32_t page, uint32_t count, std::vector<uint32_t>* out) {
  const size_t at = out->size();
  out->resize(at + count);
  return grants.read(page, {reinterpret_cast<uint8_t*>(out->data() + at), count * sizeof(uint32_t)});
}

}  // namespace

Result<std::vector<uint32_t>> read_list(Grants& grants, uint32_t list, uint32_t pages) {
  if (pages == 0 || pages > VGPU_XEN_PAGES_MAX) {
    return Status::error(EINVAL, "a list of {} pages; 1 to {} are possible", pages, VGPU_XEN_PAGES_MAX);
  }
  const uint32_t lists = (pages + VGPU_XEN_REFS_PER_PAGE - 1) / VGPU_XEN_REFS_PER_PAGE;
  std::vector<uint32_t> parts{list};
  if (lists > 1) {
    parts.clear();
    if (Status status = read_refs(grants, list, lists, &parts); !status.ok()) return status;
  }
  std::vector<uint32_t> refs;
  refs.reserve(pages);
  for (const uint32_t part : parts) {
    const auto count = std::min<uint32_t>(VGPU_XEN_REFS_PER_PAGE, pages - static_cast<uint32_t>(refs.size()));
    if (Status status = read_refs(grants, part, count, &refs); !status.ok()) return status;
  }
  return refs;
}

}  // namespace bandsaw::xen
