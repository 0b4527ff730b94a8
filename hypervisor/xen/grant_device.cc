#include "hypervisor/xen/grant_device.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <xen/grant_table.h>
// After Xen's own types.
#include <xen/gntdev.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "memory/base/log.h"

namespace bandsaw::xen {

Status GrantDevice::read(uint32_t ref, std::span<uint8_t> to) {
  gntdev_grant_copy_segment segment{};
  segment.source.foreign.ref = ref;
  segment.source.foreign.domid = domain_;
  segment.dest.virt = to.data();
  segment.len = static_cast<uint16_t>(to.size());
  segment.flags = GNTCOPY_source_gref;
  ioctl_gntdev_grant_copy copy{};
  copy.count = 1;
  copy.segments = &segment;
  if (::ioctl(device_, IOCTL_GNTDEV_GRANT_COPY, &copy) < 0) return Status::system("reading grant {}", ref);
  if (segment.status != GNTST_okay) {
    return Status::error(EFAULT, "domain {} has not granted {} (Xen's status {})", domain_, ref, segment.status);
  }
  return {};
}

Result<Grants::Pages> GrantDevice::offer(std::span<const uint32_t> refs) {
  std::vector<uint8_t> buffer(offsetof(ioctl_gntdev_map_grant_ref, refs) +
                              refs.size() * sizeof(ioctl_gntdev_grant_ref));
  auto* const request = reinterpret_cast<ioctl_gntdev_map_grant_ref*>(buffer.data());
  request->count = static_cast<uint32_t>(refs.size());
  auto* const entries =
      reinterpret_cast<ioctl_gntdev_grant_ref*>(buffer.data() + offsetof(ioctl_gntdev_map_grant_ref, refs));
  for (size_t i = 0; i < refs.size(); ++i) entries[i] = {domain_, refs[i]};
  if (::ioctl(device_, IOCTL_GNTDEV_MAP_GRANT_REF, request) < 0) {
    // EINVAL: more than its parameter says. The guest is told what it is told where it has no grants left.
    const int error = errno == EINVAL ? ENOSPC : errno;
    return Status::error(error, "gntdev takes no {} grants (its parameter `limit` bounds them)", refs.size());
  }
  Pages pages{UniqueFd(::fcntl(device_, F_DUPFD_CLOEXEC, 0)), request->index, request->count};
  if (pages.fd) return pages;
  Status status = Status::system("another descriptor of gntdev");
  withdraw(request->index, request->count);
  return status;
}

void GrantDevice::withdraw(uint64_t offset, uint32_t count) {
  ioctl_gntdev_unmap_grant_ref request{};
  request.index = offset;
  request.count = count;
  if (::ioctl(device_, IOCTL_GNTDEV_UNMAP_GRANT_REF, &request) < 0) {
    log::warn("gntdev keeps {} pages of domain {}: {}", count, domain_, std::strerror(errno));
  }
}

}  // namespace bandsaw::xen
