#include "backend/session/gate_frontend.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "backend/control/packet.h"
#include "memory/base/clock.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

// Of cuda.h: CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_FAILED.
constexpr uint32_t kLaunchTimeout = 702, kLaunchFailed = 719;

}  // namespace

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
  writable_.reset();
  arbiter_ = std::move(arbiter);
  readable_.reset(event_new(
      base_, arbiter_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<GateFrontend*>(self)->on_readable(); }, this));
  event_add(readable_.get(), nullptr);
  writable_.reset(event_new(
      base_, arbiter_.get(), EV_WRITE,
      [](evutil_socket_t, short, void* self) { static_cast<GateFrontend*>(self)->flush(); }, this));
  told_.clear();
  untold_.clear();
  for (const auto& [slot, holder] : holders_) untold_.insert(slot);
  flush();
}

// An order, or the arbiter's end.
void GateFrontend::on_readable() {
  std::array<std::byte, std::max(sizeof(RunnerEndOrder), sizeof(MemoryOrder))> packet;
  std::vector<UniqueFd> fds;
  const auto length = receive_packet(arbiter_.get(), packet, &fds);
  if (!length.ok() && length.status().code() == EAGAIN) return;
  if (length.ok() && length.value() == sizeof(RunnerEndOrder)) {
    RunnerEndOrder order;
    std::memcpy(&order, packet.data(), sizeof order);
    return end_runner(order);
  }
  if (length.ok() && length.value() == sizeof(MemoryOrder)) {
    MemoryOrder order;
    std::memcpy(&order, packet.data(), sizeof order);
    return usage_page_->set_order(order);
  }
  log::warn("the arbiter has gone: everybody may use the GPU until the next one comes");
  readable_.reset();
  writable_.reset();
  arbiter_.reset();
  // What was borrowed goes back; what was lent comes back once an arbiter has seen that others hold it no more.
  MemoryOrder order = usage_page_->order();
  order.beyond = order.coming = std::min<int64_t>(order.beyond, 0);
  usage_page_->set_order(order);
  usage_page_->open_gates();
}

void GateFrontend::end_runner(const RunnerEndOrder& order) {
  const auto found = holders_.find(order.slot);
  if (found == holders_.end() || found->second.since_ns >= order.since_ns) return;
  const bool late = order.reason == RunnerEndReason::kDeadline;
  log::warn("the arbiter ends runner {}: {}", found->second.runner->pid(),
            late ? "its kernel has run for longer than the deadline for kernels" : "it sets its time slices by itself");
  found->second.runner->fail(late ? kLaunchTimeout : kLaunchFailed);
}

void GateFrontend::taken(uint32_t slot, Runner* runner) {
  holders_[slot] = {runner, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, runner->pid(), 0))), monotonic_ns()};
  runner->set_on_channel_groups([this, slot] { tell(slot); });
  tell(slot);
}

void GateFrontend::left(uint32_t slot) {
  holders_.erase(slot);
  tell(slot);
}

void GateFrontend::tell(uint32_t slot) {
  untold_.insert(slot);
  flush();
}

void GateFrontend::flush() {
  while (arbiter_ && !untold_.empty()) {
    const uint32_t slot = *untold_.begin();
    const Status status = send(slot);
    if (status.code() == EAGAIN) {
      event_add(writable_.get(), nullptr);
      return;
    }
    if (!status.ok())
      log::warn("the arbiter does not hear of the channel groups in slot {}: {}", slot, status.message());
    untold_.erase(slot);
  }
}

Status GateFrontend::send(uint32_t slot) {
  const auto found = holders_.find(slot);
  const RunnerChannelGroups* groups = found == holders_.end() ? nullptr : found->second.runner->channel_groups();
  GateMessage message{.type = GateMessageType::kChannelGroups, .slot = slot, .channel_groups = {}};
  std::vector<int> fds;
  if (!groups) {
    if (!told_.contains(slot)) return {};
    message.type = GateMessageType::kRunnerEnds;
  } else if (groups->descriptor && found->second.process) {
    message.channel_groups = groups->list;
    fds = {groups->descriptor.get(), found->second.process.get()};
  }
  Status status = send_packet(arbiter_.get(), std::as_bytes(std::span(&message, 1)), {}, fds);
  if (!status.ok()) return status;
  if (groups) {
    told_.insert(slot);
  } else {
    told_.erase(slot);
  }
  return status;
}

}  // namespace bandsaw
