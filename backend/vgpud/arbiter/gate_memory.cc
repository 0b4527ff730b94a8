#include "backend/vgpud/arbiter/gate_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "backend/control/packet.h"
#include "backend/vgpud/arbiter/descriptor_kind.h"

namespace bandsaw {

namespace {

constexpr uint64_t kLargestPage = 64 << 20;

// Pages of shared memory that nobody can take away from under us: sealed by who made it, and of no other file system.
Status check_page(int descriptor, uint64_t* bytes) {
  struct stat info{};
  struct statfs system{};
  if (::fstat(descriptor, &info) != 0 || ::fstatfs(descriptor, &system) != 0) return Status::system("the usage page");
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || system.f_type != TMPFS_MAGIC)
    return Status::error(EPROTO, "the session's usage page is not sealed memory");
  *bytes = static_cast<uint64_t>(info.st_size);
  return {};
}

}  // namespace

Status check_greeting(const GateHello& hello, uint64_t file_bytes) {
  const uint64_t bytes = hello.usage_page_bytes;
  if (bytes > file_bytes || bytes > kLargestPage || bytes < sizeof(GrantPage) ||
      hello.grant_page_offset > bytes - sizeof(GrantPage) || hello.grant_page_offset % alignof(GrantPage) != 0) {
    return Status::error(EPROTO, "the session's usage page is not as it should be");
  }
  return {};
}

Result<std::unique_ptr<GateMemory>> GateMemory::receive(int socket, std::vector<UniqueFd>* refused) {
  GateHello hello;
  std::vector<UniqueFd>& fds = *refused;
  auto length = receive_packet(socket, std::as_writable_bytes(std::span(&hello, 1)), &fds);
  if (!length.ok()) return length.status();
  if (length.value() != sizeof hello || fds.size() != 2)
    return Status::error(EPROTO, "the session's greeting is wrong");
  uint64_t bytes = 0;
  Status status = check_page(fds[0].get(), &bytes);
  if (status.ok()) status = check_greeting(hello, bytes);
  if (status.ok() && !is_eventfd(fds[1].get())) status = Status::error(EPROTO, "the session's doorbell is no eventfd");
  if (!status.ok()) return status;
  void* memory = ::mmap(nullptr, hello.usage_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0].get(), 0);
  if (memory == MAP_FAILED) return Status::system("mapping the usage page");
  UniqueFd doorbell = std::move(fds[1]);
  fds.clear();
  return std::unique_ptr<GateMemory>(new GateMemory(std::move(doorbell), memory, hello));
}

const UsagePage* GateMemory::usage_page() const {
  const bool same = bytes_ == sizeof(UsagePage) && offset_ == offsetof(UsagePage, grant_page);
  return same ? static_cast<const UsagePage*>(memory_) : nullptr;
}

GateMemory::~GateMemory() { ::munmap(memory_, bytes_); }

}  // namespace bandsaw
