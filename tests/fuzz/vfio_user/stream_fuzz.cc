// Any bytes on the vfio-user socket, in pieces of any size: the server goes on and takes the next client.
#include <sys/socket.h>

#include <cstdlib>

#include "hypervisor/vfio_user/server.h"
#include "memory/base/log.h"
#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::vfio_user {
namespace {

void turn(event_base* base) {
  for (int i = 0; i < 4; ++i) event_base_loop(base, EVLOOP_NONBLOCK);
}

UniqueFd client_of(Server& server) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  if (!server.serve(UniqueFd(ends[0])).ok()) std::abort();
  return UniqueFd(ends[1]);
}

void run(const uint8_t* data, size_t size) {
  static event_base* base = event_base_new();
  virtio::FakeSink sink;
  virtio::Device device({.name = "fuzz"}, sink);
  Server server(base, device);
  {
    const UniqueFd client = client_of(server);
    char replies[65536];
    while (size > 0) {
      const size_t piece = std::min<size_t>(size, 1 + data[0] % 64);
      if (send(client.get(), data, piece, MSG_NOSIGNAL) <= 0) break;
      data += piece;
      size -= piece;
      turn(base);
      while (recv(client.get(), replies, sizeof(replies), 0) > 0) {
      }
    }
  }
  turn(base);
  if (device.connected()) std::abort();
  const UniqueFd next = client_of(server);
  turn(base);
}

}  // namespace
}  // namespace bandsaw::vfio_user

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bandsaw::log::silence();
  bandsaw::vfio_user::run(data, size);
  return 0;
}
