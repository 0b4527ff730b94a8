// One frontend that is connected: its requests become those of hypervisor/virtio/device.h, pages that it grants become
// RAM of which the rest of a request speaks.
//
// Threads: one event loop. Make it by std::make_shared: an answer that comes after its end goes nowhere.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "hypervisor/virtio/device.h"
#include "hypervisor/xen/grants.h"
#include "hypervisor/xen/ring.h"

namespace bandsaw::xen {

inline constexpr uint32_t kConnectionPagesMax = 1u << 20;  // that a domain may have shared at a time

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // All outlive it. `notify` rings the frontend's doorbell; `next_ram` numbers RAM over all connections.
  Connection(vgpu_xen_ring* ring, Grants& grants, virtio::DeviceSink& sink, uint32_t* next_ram,
             std::function<void()> notify);

  // Takes what the frontend has put into the ring, but not for ever: when `more()` says so, there is more to serve. Not
  // ok: it broke the protocol, and the connection must end.
  Status serve();
  bool more() const { return more_; }
  Status post_event(vgpu_event_type type, uint32_t process);
  // The session has let go of all pages: so does this process.
  void withdraw_all();
  uint32_t pages() const { return pages_; }  // shared now

 private:
  struct Shared {
    uint32_t ram = 0;
    uint64_t offset = 0;
    uint32_t count = 0;
  };
  using Key = std::tuple<uint32_t, bool, uint32_t>;  // process, whether a ring, its id

  void handle(RingRequest request);
  void add(const RingRequest& request, const vgpu_ctl_add_region& add);
  void forward(uint32_t tag, std::vector<uint8_t> body, std::function<void(Connection&, uint32_t status)> then);
  void answer(uint32_t tag, const vgpu_ctl_reply& reply);
  void refuse(uint32_t tag, const Status& status);
  Result<Shared> share(const RingRequest& request, const vgpu_ctl_add_region& add, uint64_t* address);
  void release(const Shared& shared);
  void withdraw(uint32_t ram);
  void release(Key key);
  void release_process(uint32_t process);
  Status flush_events();

  Ring ring_;
  Grants& grants_;
  virtio::DeviceSink& sink_;
  uint32_t* next_ram_;
  std::function<void()> notify_;
  std::map<Key, Shared> shared_;
  std::map<uint32_t, Shared> offered_;  // by RAM: all that is not withdrawn, that of requests on their way too
  std::deque<vgpu_event> events_;
  uint64_t next_address_ = uint64_t{1} << 40;  // of the next RAM, as the session knows it; never used twice
  uint32_t pages_ = 0;
  bool serving_ = false, notify_later_ = false, more_ = false;
};

}  // namespace bandsaw::xen
