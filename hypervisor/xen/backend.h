// The frontend for Xen: finds the domain that has this virtual GPU in xenstore, follows its states, and serves its
// ring. One domain at a time. `vgpuctl attach --hypervisor xen`, or `expect` when the domain starts, writes what it
// looks for:
//
//   backend/vgpu/DOMAIN/INDEX             (of this domain) frontend, frontend-id, name, state
//   /local/domain/DOMAIN/device/vgpu/INDEX                 backend, backend-id, state
//
// Threads: one event loop.
#pragma once

#include <event2/event.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "hypervisor/virtio/device.h"
#include "hypervisor/xen/connection.h"
#include "hypervisor/xen/grant_device.h"
#include "hypervisor/xen/store_path.h"
#include "memory/base/log_budget.h"
#include "memory/base/unique_fd.h"

struct xs_handle;
struct xenevtchn_handle;
struct xengntdev_handle;

namespace bandsaw::xen {

// Whether this machine is a domain of Xen's that may serve others.
bool available();

class Backend {
 public:
  // Opens what only root may open. `vgpu`: the name to look for.
  static Result<std::unique_ptr<Backend>> open(const std::string& vgpu);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Begins to look. Both outlive it.
  Status start(event_base* base, virtio::DeviceSink& sink);
  // Whether a domain may come: not while a VM has the virtual GPU by another way. Asked at each offer.
  void admit(std::function<bool()> admission) { admission_ = std::move(admission); }
  // Gives the virtual GPU to the domain of this name, the one that runs and each that starts from now on. Empty: to
  // none.
  void expect(const std::string& domain);
  void post_event(vgpu_event_type type, uint32_t process);
  bool connected() const { return connection_ != nullptr; }
  uint32_t domain() const { return device_ ? device_->domain : 0; }  // 0: none has it

 private:
  struct Free {
    void operator()(event* e) const { event_free(e); }
    void operator()(xs_handle* handle) const;
    void operator()(xenevtchn_handle* handle) const;
    void operator()(xengntdev_handle* handle) const;
  };
  template <typename T>
  using Handle = std::unique_ptr<T, Free>;

  Backend() = default;
  std::optional<std::string> read(const std::string& path);
  std::optional<uint32_t> read_number(const std::string& path, uint32_t most = UINT32_MAX);
  void write(const std::string& path, const std::string& value);
  void set_state(State state);
  void on_store();
  // Looks at domains that have come since the last time.
  void greet();
  void on_channel();
  void update();
  std::optional<DevicePath> find_device();
  void follow(State frontend);
  void connect();
  Status try_connect();
  // Ends the connection; `state` is written when no page is touched any more.
  void disconnect(State state);
  void finish_disconnect(State state);
  void serve(std::shared_ptr<Connection> connection);  // held: serving may end it
  void broke(const Status& status);
  // A warning that the guest has caused: at a bounded rate.
  void warn(const Status& status, const char* what);
  void drop_handles();

  std::string vgpu_, expected_;
  std::set<uint32_t> greeted_;  // domains that run and were looked at
  event_base* base_ = nullptr;
  virtio::DeviceSink* sink_ = nullptr;
  std::function<bool()> admission_;
  Handle<xs_handle> store_;
  Handle<xenevtchn_handle> channels_;
  Handle<xengntdev_handle> grants_;
  Handle<event> store_event_, channel_event_, more_event_;
  std::optional<DevicePath> device_;
  std::optional<State> state_;  // ours, as written
  bool ending_ = false;         // the session lets go of pages
  bool refused_ = false;        // what the frontend last wrote cannot be served
  LogBudget log_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  vgpu_xen_ring* ring_ = nullptr;
  int port_ = -1;
  std::unique_ptr<GrantDevice> pages_;
  std::shared_ptr<Connection> connection_;
  uint32_t next_ram_ = 0x80000000;  // the virtio device numbers its own from 1
};

}  // namespace bandsaw::xen
