#include "hypervisor/xen/backend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

// They are C's and do not say so.
extern "C" {
#include <xenevtchn.h>
#include <xengnttab.h>
#include <xenstore.h>
}

#include <cstdlib>
#include <string_view>

#include "hypervisor/xen/toolstack.h"
#include "memory/base/log.h"

namespace bandsaw::xen {
namespace {

constexpr size_t kValueMax = 256;  // of a key; longer ones mean nothing to us

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

void Backend::Free::operator()(xs_handle* handle) const { xs_close(handle); }
void Backend::Free::operator()(xenevtchn_handle* handle) const { xenevtchn_close(handle); }
void Backend::Free::operator()(xengntdev_handle* handle) const { xengnttab_close(handle); }

bool available() { return ::access("/dev/xen/gntdev", R_OK | W_OK) == 0 && ::access("/dev/xen/evtchn", R_OK) == 0; }

Result<std::unique_ptr<Backend>> Backend::open(const std::string& vgpu) {
  std::unique_ptr<Backend> backend(new Backend);
  backend->vgpu_ = vgpu;
  backend->store_.reset(xs_open(0));
  if (!backend->store_) return Status::system("xenstored does not answer");
  backend->channels_.reset(xenevtchn_open(nullptr, 0));
  if (!backend->channels_) return Status::system("/dev/xen/evtchn");
  backend->grants_.reset(xengnttab_open(nullptr, 0));
  if (!backend->grants_) return Status::system("/dev/xen/gntdev");
  return backend;
}

Backend::~Backend() {
  *alive_ = false;
  connection_.reset();
  drop_handles();
}

Status Backend::start(event_base* base, virtio::DeviceSink& sink) {
  base_ = base;
  sink_ = &sink;
  if (!xs_watch(store_.get(), "backend/" VGPU_XEN_DEVICE, "backend") ||
      !xs_watch(store_.get(), "@introduceDomain", "domains") || !xs_watch(store_.get(), "@releaseDomain", "domains")) {
    return Status::system("watching xenstore");
  }
  const auto on = [&](int fd, event_callback_fn call) {
    Handle<event> made(event_new(base_, fd, EV_READ | EV_PERSIST, call, this));
    if (made) event_add(made.get(), nullptr);
    return made;
  };
  store_event_ =
      on(xs_fileno(store_.get()), [](evutil_socket_t, short, void* self) { static_cast<Backend*>(self)->on_store(); });
  channel_event_ = on(xenevtchn_fd(channels_.get()),
                      [](evutil_socket_t, short, void* self) { static_cast<Backend*>(self)->on_channel(); });
  more_event_.reset(event_new(
      base_, -1, 0,
      [](evutil_socket_t, short, void* self) {
        auto* const backend = static_cast<Backend*>(self);
        if (backend->connection_) backend->serve(backend->connection_);
      },
      this));
  if (!store_event_ || !channel_event_ || !more_event_) return Status::error(ENOMEM, "no events for Xen's descriptors");
  return {};
}

std::optional<std::string> Backend::read(const std::string& path) {
  unsigned length = 0;
  const std::unique_ptr<void, FreeMemory> value(xs_read(store_.get(), XBT_NULL, path.c_str(), &length));
  if (!value) return std::nullopt;
  return std::string(static_cast<const char*>(value.get()), std::min<size_t>(length, kValueMax));
}

std::optional<uint32_t> Backend::read_number(const std::string& path, uint32_t most) {
  const auto text = read(path);
  return text ? parse_number(*text, most) : std::nullopt;
}

void Backend::write(const std::string& path, const std::string& value) {
  if (!xs_write(store_.get(), XBT_NULL, path.c_str(), value.data(), static_cast<unsigned>(value.size()))) {
    log::warn("xenstore does not take {}: {}", path, std::strerror(errno));
  }
}

void Backend::set_state(State state) {
  if (!device_ || state_ == state) return;
  state_ = state;
  write(device_->backend() + "/state", std::to_string(static_cast<uint32_t>(state)));
}

void Backend::on_store() {
  bool domains = false;
  while (char** const event = xs_check_watch(store_.get())) {
    domains = domains || std::string_view(event[XS_WATCH_TOKEN]) == "domains";
    std::free(event);
  }
  if (domains) greet();
  update();
}

void Backend::expect(const std::string& domain) {
  if (domain == expected_) return;
  expected_ = domain;
  greeted_.clear();
  greet();
}

// Each domain once: one from which the device was taken does not get it back before it starts anew.
void Backend::greet() {
  if (expected_.empty()) return;
  std::set<uint32_t> all;
  for (const uint32_t domain : domains(store_.get())) {
    all.insert(domain);
    if (greeted_.count(domain) || domain_name(store_.get(), domain) != expected_) continue;
    const Status status = attach(store_.get(), domain, vgpu_);
    if (!status.ok() && status.code() != EEXIST) log::warn("domain {}: {}", domain, status.message());
  }
  greeted_ = std::move(all);
}

// The device that has our name, if a domain has one. What stands of those whose domain is gone goes: the toolstack does
// not know our kind of device.
std::optional<DevicePath> Backend::find_device() {
  const std::string folder = "backend/" VGPU_XEN_DEVICE;
  unsigned domains = 0;
  const std::unique_ptr<char*, FreeMemory> domain(xs_directory(store_.get(), XBT_NULL, folder.c_str(), &domains));
  for (unsigned i = 0; domain && i < domains; ++i) {
    unsigned devices = 0;
    const std::unique_ptr<char*, FreeMemory> index(
        xs_directory(store_.get(), XBT_NULL, fmt::format("{}/{}", folder, domain.get()[i]).c_str(), &devices));
    for (unsigned k = 0; index && k < devices; ++k) {
      const auto found = parse_device(domain.get()[i], index.get()[k]);
      if (!found || read(found->backend() + "/name") != vgpu_) continue;
      if (read(found->frontend() + "/backend-id")) return found;
      forget(store_.get(), *found);
    }
  }
  return std::nullopt;
}

void Backend::update() {
  if (ending_) return;  // looks again when that is over
  const auto found = find_device();
  if (device_ && found != device_) {
    log::info("domain {} no longer has the virtual GPU", device_->domain);
    return disconnect(State::kClosed);
  }
  if (!found) return;
  if (!device_) {
    if (admission_ && !admission_()) return;
    device_ = found;
    state_.reset();
    xs_watch(store_.get(), device_->frontend().c_str(), "frontend");
    write(device_->backend() + "/abi-version", std::to_string(VGPU_ABI_VERSION));
  }
  follow(parse_state(read(device_->frontend() + "/state").value_or("")));
}

void Backend::follow(State frontend) {
  switch (frontend) {
    case State::kInitialised:
      if (!connection_ && state_ == State::kInitWait) connect();
      return;
    case State::kConnected:
      // Of a session before us: the frontend has to begin anew.
      if (!connection_ && state_ != State::kConnected) set_state(State::kClosing);
      return;
    case State::kClosing:
      if (connection_) return disconnect(State::kClosed);
      return set_state(State::kClosed);
    default:  // Initialising, Closed, and what means nothing
      if (connection_) return disconnect(State::kInitWait);
      // It would try the same again, for ever. Its driver begins anew when it is loaded anew.
      if (refused_ && frontend == State::kClosed) return;
      refused_ = false;
      set_state(State::kInitWait);
  }
}

void Backend::connect() {
  if (const Status status = try_connect(); !status.ok()) {
    warn(status, "cannot be served");
    drop_handles();
    refused_ = true;
    return set_state(State::kClosed);
  }
  if (log_.allow()) log::info("domain {} has connected", device_->domain);
  set_state(State::kConnected);
  sink_->on_connected();
  sink_->on_driver_ready();
}

Status Backend::try_connect() {
  const std::string folder = device_->frontend();
  if (read_number(folder + "/abi-version") != VGPU_ABI_VERSION) {
    return Status::error(EPROTO, "its driver speaks another version than {}", VGPU_ABI_VERSION);
  }
  uint32_t refs[VGPU_XEN_RING_PAGES];
  for (int i = 0; i < VGPU_XEN_RING_PAGES; ++i) {
    const auto ref = read_number(fmt::format("{}/ring-ref{}", folder, i));
    if (!ref) return Status::error(EPROTO, "its ring-ref{} is no number", i);
    refs[i] = *ref;
  }
  const auto port = read_number(folder + "/event-channel");
  if (!port) return Status::error(EPROTO, "its event-channel is no number");
  ring_ = static_cast<vgpu_xen_ring*>(xengnttab_map_domain_grant_refs(grants_.get(), VGPU_XEN_RING_PAGES,
                                                                      device_->domain, refs, PROT_READ | PROT_WRITE));
  if (!ring_) return Status::system("mapping its ring");
  port_ = xenevtchn_bind_interdomain(channels_.get(), device_->domain, *port);
  if (port_ < 0) return Status::system("binding its event channel {}", *port);
  pages_ = std::make_unique<GrantDevice>(xengnttab_fd(grants_.get()), static_cast<uint16_t>(device_->domain));
  connection_ = std::make_shared<Connection>(ring_, *pages_, *sink_, &next_ram_, [this] {
    if (port_ >= 0) xenevtchn_notify(channels_.get(), static_cast<evtchn_port_t>(port_));
  });
  return {};
}

void Backend::on_channel() {
  const xenevtchn_port_or_error_t port = xenevtchn_pending(channels_.get());
  if (port < 0) return;
  xenevtchn_unmask(channels_.get(), static_cast<evtchn_port_t>(port));
  if (connection_ && port == port_) serve(connection_);
}

void Backend::serve(const std::shared_ptr<Connection> connection) {
  broke(connection->serve());
  // The rest after others' turn: as if the doorbell had rung again.
  if (connection == connection_ && connection->more()) event_active(more_event_.get(), EV_TIMEOUT, 0);
}

void Backend::post_event(vgpu_event_type type, uint32_t process) {
  if (!connection_) return;
  const auto held = connection_;
  broke(held->post_event(type, process));
}

void Backend::broke(const Status& status) {
  if (status.ok()) return;
  warn(status, "broke the protocol");
  disconnect(State::kClosing);
}

void Backend::warn(const Status& status, const char* what) {
  if (log_.allow()) log::warn("domain {} {}: {}", device_->domain, what, status.message());
}

void Backend::drop_handles() {
  if (port_ >= 0) xenevtchn_unbind(channels_.get(), static_cast<evtchn_port_t>(port_));
  port_ = -1;
  if (ring_) xengnttab_unmap(grants_.get(), ring_, VGPU_XEN_RING_PAGES);
  ring_ = nullptr;
  pages_.reset();
}

// Answers that are still to come go nowhere once the connection is gone.
void Backend::disconnect(State state) {
  if (ending_) return;
  if (!connection_) return finish_disconnect(state);
  ending_ = true;
  const auto last = std::exchange(connection_, nullptr);
  sink_->on_reset([this, alive = alive_, last, state] {
    if (!*alive) return;
    ending_ = false;
    last->withdraw_all();
    drop_handles();
    sink_->on_disconnected();
    finish_disconnect(state);
  });
}

void Backend::finish_disconnect(State state) {
  const bool is_here = device_ && find_device() == device_;
  if (is_here) {
    set_state(state);
  } else if (device_) {
    xs_unwatch(store_.get(), device_->frontend().c_str(), "frontend");
    forget(store_.get(), *device_);  // what was written after it had gone
    device_.reset();
    state_.reset();
    refused_ = false;
  }
  update();
}

}  // namespace bandsaw::xen
