// The frontend for QEMU (>= 10.1): a vfio-user server on Unix stream sockets. One client at a time; the next one waits
// in a socket's backlog until the first has gone. The server outlives its clients.
#pragma once

#include <event2/event.h>
#include <sys/types.h>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "hypervisor/vfio_user/commands.h"
#include "hypervisor/vfio_user/connection.h"
#include "hypervisor/virtio/device.h"
#include "hypervisor/virtio/pci_function.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::vfio_user {

class Server {
 public:
  // `base` and `device` must outlive the server.
  Server(event_base* base, virtio::Device& device);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Makes and listens on a socket at `path` (at most 107 bytes), replacing a stale one; removed in the destructor.
  Status listen(const std::string& path);
  // Takes a bound and listening socket. Whoever connects there gets the device with these interrupts.
  using Interrupts = virtio::PciFunction::Interrupts;
  Status adopt(UniqueFd listening, Interrupts interrupts = Interrupts::kMsix);
  // Whom on_client() takes: it is called with the socket of whoever connects, and an error sends that one away.
  using Admission = std::function<Status(int socket)>;
  void admit(Admission admission) { admission_ = std::move(admission); }
  // The process that has connected, as the kernel says; 0: nobody has.
  pid_t client_pid() const { return client_pid_; }
  // From now on connections outlive this process: the next one takes them where this socket was bound
  // (held_connection.h).
  void outlive(UniqueFd listening) { outlive_ = std::move(listening); }
  // Goes on with one, whom admit() has allowed; an error ends it. The guest's driver is told to begin anew.
  Status go_on(Held held);
  // Takes an accepted client. Error: EBUSY while another one is connected.
  Status serve(UniqueFd client);

 private:
  struct EventDeleter {
    void operator()(event* e) const { event_free(e); }
  };

  using Event = std::unique_ptr<event, EventDeleter>;
  struct Door {
    Server* server;
    UniqueFd listening;
    Interrupts interrupts;
    Event accept;
  };

  void on_client(const Door& door);
  void attend(UniqueFd client);
  void client_gone();

  event_base* base_;
  virtio::Device& device_;
  Commands commands_;
  Admission admission_;  // null: everybody
  std::string path_;
  std::list<Door> doors_;
  UniqueFd outlive_;
  std::unique_ptr<Connection> connection_;
  pid_t client_pid_ = 0;
};

}  // namespace bandsaw::vfio_user
