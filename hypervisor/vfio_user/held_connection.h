// A hypervisor's connection between two processes that serve it: what the next one needs to go on where one has died.
// The guest's driver is told that its device needs a reset; nothing of its queues is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hypervisor/virtio/pci_function.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::vfio_user {

inline constexpr uint32_t kHeldMapsMax = 192;
// Of one packet, the connection's own among them; Linux allows 253.
inline constexpr uint32_t kHeldFdsMax = 1 + kHeldMapsMax + virtio::PciFunction::kVectors + 1;
static_assert(kHeldFdsMax <= 253);

struct HeldMap {
  uint64_t gpa = 0, bytes = 0, offset = 0;
  uint32_t writable = 0;
  uint32_t has_fd = 0;
};

struct HeldHead {
  uint32_t version = 1;
  uint32_t line = 0;     // an interrupt line in place of MSI-X
  uint32_t vectors = 0;  // bits: which have an eventfd
  uint32_t has_line = 0;
  uint32_t maps = 0;
  uint32_t reserved = 0;
  virtio::PciFunction::Registers registers;
};

// As one packet: the head, then the maps. Descriptors: the connection (in the guardian's packet alone), those of maps,
// of vectors, of the line.
struct HeldPacket {
  HeldHead head;
  HeldMap maps[kHeldMapsMax];
};
inline constexpr size_t held_bytes(uint32_t maps) { return offsetof(HeldPacket, maps) + maps * sizeof(HeldMap); }

// Reads what is left and closes, which does not harm QEMU (connection_guardian.h). Also after a fork.
void close_cleanly(int client);

struct Held {
  Held() = default;
  Held(Held&&) = default;
  Held& operator=(Held&&) = default;
  ~Held() {
    if (client) close_cleanly(client.release());  // nobody goes on with it
  }

  HeldHead head;
  std::vector<HeldMap> maps;
  UniqueFd client;
  std::vector<UniqueFd> fds;  // as above, without the connection
};

// Sends `bytes` of the packet with these descriptors; false: the other end has gone. Also after a fork.
bool send_held(int socket, const HeldPacket& packet, size_t bytes, const int* fds, uint32_t count);
// The next packet: its bytes, 0 at the end. Descriptors that do not fit are closed. Also after a fork.
long receive_held(int socket, HeldPacket* packet, int* fds, uint32_t* count);

// What is said first to whoever holds a connection: hand it over, or (vgpud, where no session comes any more) end it.
inline constexpr char kTake = 't', kEnd = 'e';

// From whoever listens at `path`: a connection whose process has died. ENOENT, ECONNREFUSED: there is none.
Result<Held> take_held(const std::string& path);

}  // namespace bandsaw::vfio_user
