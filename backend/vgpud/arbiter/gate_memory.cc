#include "backend/vgpud/arbiter/gate_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <span>
#include <utility>
#include <vector>

#include "backend/control/packet.h"

namespace bandsaw {

Result<std::unique_ptr<GateMemory>> GateMemory::receive(int socket) {
  GateHello hello;
  std::vector<UniqueFd> fds;
  auto length = receive_packet(socket, std::as_writable_bytes(std::span(&hello, 1)), &fds);
  if (!length.ok()) return length.status();
  if (length.value() != sizeof hello || fds.size() != 2)
    return Status::error(EPROTO, "the session's greeting is wrong");
  // Sealed by who made it: nobody can take the pages away from under us.
  struct stat info{};
  if (::fstat(fds[0].get(), &info) != 0) return Status::system("the usage page");
  const int seals = ::fcntl(fds[0].get(), F_GET_SEALS);
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || bytes < hello.usage_page_bytes ||
      hello.usage_page_bytes < sizeof(GrantPage) ||
      hello.grant_page_offset > hello.usage_page_bytes - sizeof(GrantPage) ||
      hello.grant_page_offset % alignof(GrantPage) != 0) {
    return Status::error(EPROTO, "the session's usage page is not as it should be");
  }
  void* memory = ::mmap(nullptr, hello.usage_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0].get(), 0);
  if (memory == MAP_FAILED) return Status::system("mapping the usage page");
  return std::unique_ptr<GateMemory>(new GateMemory(std::move(fds[1]), memory, hello));
}

GateMemory::~GateMemory() { ::munmap(memory_, bytes_); }

}  // namespace bandsaw
