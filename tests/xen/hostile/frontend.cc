#include "tests/xen/hostile/frontend.h"

// They are C's and do not say so.
extern "C" {
#include <xenevtchn.h>
#include <xengnttab.h>
#include <xenstore.h>
}

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr auto kPause = std::chrono::milliseconds(5);

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

SharedPages::SharedPages(uint32_t domain, uint32_t count) : handle_(xengntshr_open(nullptr, 0)), refs_(count) {
  if (handle_) data_ = xengntshr_share_pages(handle_, domain, static_cast<int>(count), refs_.data(), 1);
  if (!data_) throw Wrong("this domain cannot grant " + std::to_string(count) + " pages: is xen-gntalloc loaded?");
  std::memset(data_, 0, count * VGPU_XEN_PAGE_BYTES);
}

SharedPages::~SharedPages() {
  xengntshr_unshare(handle_, data_, static_cast<uint32_t>(refs_.size()));
  xengntshr_close(handle_);
}

Frontend::Frontend() : store_(xs_open(0)), channels_(xenevtchn_open(nullptr, 0)) {
  if (!store_ || !channels_) throw Wrong("no xenstore or no event channels here");
  const auto backend = read(folder_ + "/backend"), domain = read(folder_ + "/backend-id"), own = read("domid");
  if (!backend || !domain || !own) throw Wrong("this domain has no virtual GPU");
  backend_folder_ = *backend;
  backend_ = static_cast<uint32_t>(std::stoul(*domain));
  self_ = static_cast<uint32_t>(std::stoul(*own));
}

Frontend::~Frontend() {
  if (port_ >= 0) xenevtchn_unbind(channels_, static_cast<evtchn_port_t>(port_));
  xenevtchn_close(channels_);
  xs_close(store_);
}

std::optional<std::string> Frontend::read(const std::string& path) {
  unsigned length = 0;
  char* const value = static_cast<char*>(xs_read(store_, XBT_NULL, path.c_str(), &length));
  if (!value) return std::nullopt;
  std::string text(value, length);
  std::free(value);
  return text;
}

void Frontend::set(const std::string& key, const std::string& value) {
  if (!xs_write(store_, XBT_NULL, (folder_ + "/" + key).c_str(), value.data(), static_cast<unsigned>(value.size()))) {
    throw Wrong("xenstore does not take " + key);
  }
}

bool Frontend::backend_becomes(std::initializer_list<int> states) {
  for (const double end = now() + 5; now() < end; std::this_thread::sleep_for(kPause)) {
    const auto state = read(backend_folder_ + "/state");
    if (!state) continue;
    if (std::find(states.begin(), states.end(), std::atoi(state->c_str())) != states.end()) return true;
  }
  return false;
}

void Frontend::start_anew() {
  set("state", "1");
  if (!backend_becomes({2})) throw Wrong("the backend does not offer again");
}

void Frontend::make_ring(std::optional<uint32_t> owner) {
  if (port_ >= 0) xenevtchn_unbind(channels_, static_cast<evtchn_port_t>(port_));
  requests_ = replies_ = 0;
  pages_.reset();
  pages_.emplace(owner.value_or(backend_), VGPU_XEN_RING_PAGES);
  port_ = xenevtchn_bind_unbound_port(channels_, backend_);
  if (port_ < 0) throw Wrong("no event channel");
  for (size_t i = 0; i < VGPU_XEN_RING_PAGES; ++i) {
    set("ring-ref" + std::to_string(i), std::to_string(pages_->refs()[i]));
  }
  set("event-channel", std::to_string(port_));
  set("abi-version", std::to_string(VGPU_ABI_VERSION));
}

void Frontend::connect() {
  start_anew();
  make_ring();
  set("state", "3");
  if (!backend_becomes({4})) throw Wrong("the backend does not connect");
  set("state", "4");
}

void Frontend::notify() { xenevtchn_notify(channels_, static_cast<evtchn_port_t>(port_)); }

uint32_t Frontend::put_bytes(const void* body, uint32_t bytes, uint32_t list, uint32_t pages) {
  vgpu_xen_request& entry = ring().requests[requests_ % VGPU_XEN_SLOTS];
  entry = {.tag = requests_, .bytes = bytes, .list = list, .pages = pages, .body = {}};
  std::memcpy(entry.body, body, bytes);
  std::atomic_ref(ring().indices.requests).store(++requests_, std::memory_order_release);
  notify();
  return requests_ - 1;
}

std::optional<uint32_t> Frontend::reply(uint32_t tag, double seconds) {
  for (const double end = now() + seconds; now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    const uint32_t made = std::atomic_ref(ring().indices.replies).load(std::memory_order_acquire);
    while (replies_ != made) {
      const vgpu_xen_reply& entry = ring().replies[replies_++ % VGPU_XEN_SLOTS];
      if (entry.tag == tag) return entry.reply.status;
    }
  }
  return std::nullopt;
}
