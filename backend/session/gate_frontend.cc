#include "backend/session/gate_frontend.h"

#include <sys/socket.h>

#include <cstddef>

#include "backend/control/packet.h"
#include "memory/base/log.h"

namespace bandsaw {

GateFrontend::GateFrontend(event_base* base, UniqueFd listener, UsagePageOwner* usage_page)
    : base_(base), listener_(std::move(listener)), usage_page_(usage_page) {
  evutil_make_socket_nonblocking(listener_.get());
  accept_.reset(event_new(
      base_, listener_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<GateFrontend*>(self)->on_arbiter(); }, this));
  event_add(accept_.get(), nullptr);
}

// The newest connection counts: an earlier arbiter has gone, or soon will.
void GateFrontend::on_arbiter() {
  UniqueFd arbiter(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!arbiter) return;
  const GateHello hello{sizeof(UsagePage), offsetof(UsagePage, grant_page)};
  const int fds[] = {usage_page_->fd(), usage_page_->doorbell()};
  if (Status status = send_packet(arbiter.get(), std::as_bytes(std::span(&hello, 1)), {}, fds); !status.ok()) {
    log::warn("cannot hand the gates over: {}", status.message());
    return;
  }
  readable_.reset();
  arbiter_ = std::move(arbiter);
  readable_.reset(event_new(
      base_, arbiter_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<GateFrontend*>(self)->on_readable(); }, this));
  event_add(readable_.get(), nullptr);
}

// The arbiter says nothing: this is its end.
void GateFrontend::on_readable() {
  log::warn("the arbiter has gone: everybody may use the GPU until the next one comes");
  readable_.reset();
  arbiter_.reset();
  usage_page_->open_gates();
}

}  // namespace bandsaw
