#include "tests/unit/xen/fake_xen.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

extern "C" {
#include <xenevtchn.h>
#include <xengnttab.h>
#include <xenstore.h>
}

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "hypervisor/xen/grant_device.h"

namespace bandsaw::xen {
namespace {

FakeXen* current_xen = nullptr;

// One block, as the library gives: pointers, then what they point to.
char** block_of(const std::vector<std::string>& texts) {
  size_t bytes = (texts.size() + 1) * sizeof(char*);
  for (const std::string& text : texts) bytes += text.size() + 1;
  auto** const block = static_cast<char**>(std::malloc(bytes));
  char* at = reinterpret_cast<char*>(block + texts.size() + 1);
  for (size_t i = 0; i < texts.size(); ++i) {
    block[i] = at;
    at = std::copy_n(texts[i].c_str(), texts[i].size() + 1, at);
  }
  block[texts.size()] = nullptr;
  return block;
}

template <typename T>
T failed(int error, T value) {
  errno = error;
  return value;
}

FakeStore& store_of_others() {
  FakeXen& xen = FakeXen::current();
  // Not again while they are at work: what they do may ask the store, too.
  if (const auto others = std::exchange(xen.meanwhile, nullptr)) {
    others();
    xen.meanwhile = others;
  }
  return xen.store;
}

constexpr int kGrantDevice = 1000;  // no open file's

// A domain's grants, asked for by way of the grant device: the backend's own domain grants itself nothing.
FakeGrants& grants_of(int device, uint16_t domain) {
  if (device != kGrantDevice || domain == 0) std::abort();
  return FakeXen::current().grants;
}

}  // namespace

FakeXen::FakeXen() : channel_signal(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  current_xen = this;
  store.write("/local/domain/0/domid", "0");
}

FakeXen::~FakeXen() { current_xen = nullptr; }

FakeXen& FakeXen::current() { return current_xen ? *current_xen : (std::abort(), *current_xen); }

void FakeXen::create_domain(uint32_t domain, const std::string& name) {
  store.write(fmt::format("/local/domain/{}/name", domain), name);
  store.fire("@introduceDomain");
}

void FakeXen::destroy_domain(uint32_t domain) {
  store.remove(fmt::format("/local/domain/{}", domain));
  store.fire("@releaseDomain");
}

void FakeXen::offer_ring(uint32_t domain, uint32_t index) {
  const std::string folder = DevicePath{domain, index}.frontend();
  for (uint32_t i = 0; i < VGPU_XEN_RING_PAGES; ++i) {
    granted.insert(100 + i);
    store.write(fmt::format("{}/ring-ref{}", folder, i), std::to_string(100 + i));
  }
  unbound.insert(9);
  store.write(folder + "/event-channel", "9");
  store.write(folder + "/abi-version", std::to_string(VGPU_ABI_VERSION));
  store.write(folder + "/state", "3");
}

void FakeXen::ring_doorbell() {
  for (const auto& [port, remote] : ports) pending.push_back(port);
  if (!pending.empty()) eventfd_write(channel_signal.get(), 1);
}

Status GrantDevice::read(uint32_t ref, std::span<uint8_t> to) { return grants_of(device_, domain_).read(ref, to); }
Result<Grants::Pages> GrantDevice::offer(std::span<const uint32_t> refs) {
  return grants_of(device_, domain_).offer(refs);
}
void GrantDevice::withdraw(uint64_t offset, uint32_t count) { grants_of(device_, domain_).withdraw(offset, count); }

}  // namespace bandsaw::xen

using bandsaw::xen::FakeXen;

// NOLINTBEGIN: the libraries' names and ways
extern "C" {

struct xs_handle {
  bool watches = false;
};
struct xenevtchn_handle {
  char unused;
};
struct xengntdev_handle {
  char unused;
};

xs_handle* xs_open(unsigned long) { return new xs_handle; }
void xs_close(xs_handle* handle) {
  if (handle->watches) FakeXen::current().store.forget_watches();
  delete handle;
}
int xs_fileno(xs_handle*) { return FakeXen::current().store.event_fd(); }

void* xs_read(xs_handle*, xs_transaction_t transaction, const char* path, unsigned* length) {
  const auto value = bandsaw::xen::store_of_others().read(path, transaction);
  if (!value) return bandsaw::xen::failed<void*>(ENOENT, nullptr);
  *length = static_cast<unsigned>(value->size());
  char* const copy = static_cast<char*>(std::malloc(value->size() + 1));
  std::memcpy(copy, value->c_str(), value->size() + 1);
  return copy;
}

char** xs_directory(xs_handle*, xs_transaction_t transaction, const char* path, unsigned* count) {
  auto& store = bandsaw::xen::store_of_others();
  if (!store.read(path, transaction)) return bandsaw::xen::failed<char**>(ENOENT, nullptr);
  const auto names = store.list(path, transaction);
  *count = static_cast<unsigned>(names.size());
  return bandsaw::xen::block_of(names);
}

bool xs_write(xs_handle*, xs_transaction_t transaction, const char* path, const void* data, unsigned length) {
  bandsaw::xen::store_of_others().write(path, {static_cast<const char*>(data), length}, transaction);
  return true;
}

bool xs_mkdir(xs_handle*, xs_transaction_t transaction, const char* path) {
  auto& store = bandsaw::xen::store_of_others();
  if (!store.read(path, transaction)) store.write(path, "", transaction);
  return true;
}

bool xs_rm(xs_handle*, xs_transaction_t transaction, const char* path) {
  return bandsaw::xen::store_of_others().remove(path, transaction) || bandsaw::xen::failed(ENOENT, false);
}

bool xs_set_permissions(xs_handle*, xs_transaction_t transaction, const char* path, xs_permissions*, unsigned) {
  return bandsaw::xen::store_of_others().read(path, transaction) || bandsaw::xen::failed(ENOENT, false);
}

xs_transaction_t xs_transaction_start(xs_handle*) { return bandsaw::xen::store_of_others().begin(); }

bool xs_transaction_end(xs_handle*, xs_transaction_t transaction, bool abort) {
  return bandsaw::xen::store_of_others().end(transaction, abort) || bandsaw::xen::failed(EAGAIN, false);
}

bool xs_watch(xs_handle* handle, const char* path, const char* token) {
  handle->watches = true;
  return FakeXen::current().store.watch({path, token}) || bandsaw::xen::failed(EEXIST, false);
}

bool xs_unwatch(xs_handle*, const char* path, const char* token) {
  return FakeXen::current().store.unwatch({path, token}) || bandsaw::xen::failed(ENOENT, false);
}

char** xs_check_watch(xs_handle*) {
  const auto event = FakeXen::current().store.next_event();
  return event ? bandsaw::xen::block_of({event->path, event->token}) : bandsaw::xen::failed<char**>(EAGAIN, nullptr);
}

xenevtchn_handle* xenevtchn_open(xentoollog_logger*, unsigned) { return new xenevtchn_handle{}; }
int xenevtchn_close(xenevtchn_handle* handle) { return delete handle, 0; }
int xenevtchn_fd(xenevtchn_handle*) { return FakeXen::current().channel_signal.get(); }

xenevtchn_port_or_error_t xenevtchn_bind_interdomain(xenevtchn_handle*, uint32_t, evtchn_port_t remote) {
  FakeXen& xen = FakeXen::current();
  if (!xen.unbound.erase(remote)) return bandsaw::xen::failed(EINVAL, -1);  // one end each
  xen.ports.emplace(xen.next_port, remote);
  return static_cast<int>(xen.next_port++);
}

int xenevtchn_unbind(xenevtchn_handle*, evtchn_port_t port) {
  if (FakeXen::current().ports.erase(port) != 1) std::abort();
  std::erase(FakeXen::current().pending, port);
  return 0;
}

int xenevtchn_notify(xenevtchn_handle*, evtchn_port_t port) {
  if (!FakeXen::current().ports.count(port)) std::abort();
  ++FakeXen::current().notified;
  return 0;
}

xenevtchn_port_or_error_t xenevtchn_pending(xenevtchn_handle*) {
  FakeXen& xen = FakeXen::current();
  if (xen.pending.empty()) {
    eventfd_t count;
    eventfd_read(xen.channel_signal.get(), &count);
    return bandsaw::xen::failed(EAGAIN, -1);
  }
  const uint32_t port = xen.pending.front();
  xen.pending.pop_front();
  return static_cast<int>(port);
}

int xenevtchn_unmask(xenevtchn_handle*, evtchn_port_t port) {
  if (!FakeXen::current().ports.count(port)) std::abort();
  return 0;
}

xengntdev_handle* xengnttab_open(xentoollog_logger*, unsigned) { return new xengntdev_handle{}; }
int xengnttab_close(xengntdev_handle* handle) { return delete handle, 0; }
int xengnttab_fd(xengntdev_handle*) { return bandsaw::xen::kGrantDevice; }

void* xengnttab_map_domain_grant_refs(xengntdev_handle*, uint32_t count, uint32_t, uint32_t* refs, int) {
  FakeXen& xen = FakeXen::current();
  for (uint32_t i = 0; i < count; ++i) {
    if (!xen.granted.count(refs[i])) return bandsaw::xen::failed<void*>(EINVAL, nullptr);
  }
  auto ring = std::make_unique<vgpu_xen_ring>();
  void* const mapped = ring.get();
  xen.rings.emplace(mapped, std::move(ring));
  return mapped;
}

int xengnttab_unmap(xengntdev_handle*, void* mapped, uint32_t) {
  if (FakeXen::current().rings.erase(mapped) != 1) std::abort();
  return 0;
}

}  // extern "C"
// NOLINTEND
