#include "hypervisor/vfio_user/server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "hypervisor/virtio/pci_function.h"
#include "memory/base/log.h"

namespace bandsaw::vfio_user {

Server::Server(event_base* base, virtio::Device& device) : base_(base), device_(device), commands_(device.pci()) {}

Server::~Server() {
  doors_.clear();
  if (connection_) client_gone();
  if (!path_.empty()) unlink(path_.c_str());
}

Status Server::listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return Status::error(ENAMETOOLONG, "socket path '{}' is longer than {} bytes", path, sizeof(address.sun_path) - 1);
  path.copy(address.sun_path, path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Status::system("socket");
  unlink(path.c_str());
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return Status::system("binding {}", path);
  path_ = path;
  if (::listen(socket.get(), 4) != 0) return Status::system("listening on {}", path);
  return adopt(std::move(socket));
}

Status Server::adopt(UniqueFd listening, Interrupts interrupts) {
  evutil_make_socket_nonblocking(listening.get());
  Door& door = doors_.emplace_back(Door{this, std::move(listening), interrupts, nullptr});
  const auto on_event = [](evutil_socket_t, short, void* argument) {
    const auto* const asked = static_cast<Door*>(argument);
    asked->server->on_client(*asked);
  };
  door.accept.reset(event_new(base_, door.listening.get(), EV_READ | EV_PERSIST, on_event, &door));
  if (!door.accept || event_add(door.accept.get(), nullptr) != 0)
    return Status::error(ENOMEM, "no event for the vfio-user socket");
  return {};
}

void Server::on_client(const Door& door) {
  if (connection_) return;  // by the other door, just now
  UniqueFd client(accept4(door.listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client) return;
  if (const Status status = admission_ ? admission_(client.get()) : Status(); !status.ok()) {
    return log::warn("vfio-user: {}", status.message());
  }
  device_.pci().use(door.interrupts);
  if (Status status = serve(std::move(client)); !status.ok()) log::warn("vfio-user: {}", status.message());
}

Status Server::go_on(Held held) {
  if (connection_) return Status::error(EBUSY, "another hypervisor is connected");
  if (Status status = admission_ ? admission_(held.client.get()) : Status(); !status.ok()) return status;
  UniqueFd client = std::move(held.client);
  device_.pci().core().connected();
  commands_.go_on(std::move(held));
  attend(std::move(client));
  return {};
}

Status Server::serve(UniqueFd client) {
  if (connection_) return Status::error(EBUSY, "another hypervisor is connected");
  device_.pci().core().connected();
  attend(std::move(client));
  return {};
}

void Server::attend(UniqueFd client) {
  for (const Door& door : doors_) event_del(door.accept.get());
  ucred who{};
  socklen_t length = sizeof who;
  if (::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &who, &length) == 0) client_pid_ = who.pid;
  connection_ = std::make_unique<Connection>(
      base_, std::move(client), commands_, [this] { client_gone(); }, outlive_ ? outlive_.get() : -1);
}

// QEMU may have been killed, so nothing that it set up is kept.
void Server::client_gone() {
  connection_.reset();
  client_pid_ = 0;
  commands_.forget_client();
  device_.pci().hypervisor_gone();
  for (const Door& door : doors_) event_add(door.accept.get(), nullptr);
}

}  // namespace bandsaw::vfio_user
