#include "hypervisor/xen/connection.h"

#include <algorithm>

namespace bandsaw::xen {
namespace {

template <typename T>
T prefix_of(const std::vector<uint8_t>& bytes) {
  T value{};
  std::copy_n(bytes.data(), std::min(sizeof value, bytes.size()), reinterpret_cast<uint8_t*>(&value));
  return value;
}

template <typename T>
void append(const T& value, std::vector<uint8_t>* to) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
  to->insert(to->end(), bytes, bytes + sizeof value);
}

constexpr uint32_t kRequestsPerTurn = 4 * VGPU_XEN_SLOTS;  // then others have their turn

bool names_memory(uint32_t type) { return type == VGPU_CTL_ADD_RING || type == VGPU_CTL_ADD_REGION; }

}  // namespace

Connection::Connection(vgpu_xen_ring* ring, Grants& grants, virtio::DeviceSink& sink, uint32_t* next_ram,
                       std::function<void()> notify)
    : ring_(ring), grants_(grants), sink_(sink), next_ram_(next_ram), notify_(std::move(notify)) {}

Status Connection::serve() {
  serving_ = true;
  Status status;
  std::optional<RingRequest> request;
  uint32_t left = kRequestsPerTurn;
  while (left > 0 && (status = ring_.take(request)).ok() && request) {
    handle(std::move(*request));
    --left;
  }
  more_ = left == 0;
  if (status.ok()) status = flush_events();
  serving_ = false;
  if (std::exchange(notify_later_, false)) notify_();
  return status;
}

void Connection::handle(RingRequest request) {
  const auto header = prefix_of<vgpu_ctl_header>(request.body);
  if (names_memory(header.type) != (request.pages > 0) ||
      (request.pages > 0 && request.body.size() != sizeof(vgpu_ctl_add_region))) {
    return refuse(request.tag, Status::error(EINVAL, "a request of type {} that names {} pages", uint32_t{header.type},
                                             request.pages));
  }
  if (request.pages > 0) return add(request, prefix_of<vgpu_ctl_add_region>(request.body));
  const bool drops_ring = header.type == VGPU_CTL_DROP_RING;
  if (drops_ring || header.type == VGPU_CTL_DROP_REGION) {
    const Key key{header.process, drops_ring, prefix_of<vgpu_ctl_drop>(request.body).id};
    return forward(request.tag, std::move(request.body), [key](Connection& self, uint32_t status) {
      if (status == 0) self.release(key);
    });
  }
  if (header.type == VGPU_CTL_DESTROY_PROCESS) {
    return forward(request.tag, std::move(request.body),
                   [process = uint32_t{header.process}](Connection& self, uint32_t status) {
                     if (status == 0) self.release_process(process);
                   });
  }
  forward(request.tag, std::move(request.body), nullptr);
}

Result<Connection::Shared> Connection::share(const RingRequest& request, const vgpu_ctl_add_region& add,
                                             uint64_t* address) {
  if (request.pages > kConnectionPagesMax - pages_) {
    return Status::error(ENOSPC, "a domain shares at most {} pages", kConnectionPagesMax);
  }
  if (*next_ram_ == UINT32_MAX) return Status::error(ENOSPC, "this session has no number left for shared pages");
  const auto refs = read_list(grants_, request.list, request.pages);
  if (!refs.ok()) return refs.status();
  auto pages = grants_.offer(refs.value());
  if (!pages.ok()) return pages.status();
  const Shared shared{(*next_ram_)++, pages.value().offset, pages.value().count};
  const uint64_t bytes = uint64_t{shared.count} * VGPU_XEN_PAGE_BYTES;
  *address = std::exchange(next_address_, next_address_ + bytes);
  pages_ += shared.count;
  offered_.emplace(shared.ram, shared);
  sink_.on_ram_added({.id = shared.ram,
                      .gpa = *address,
                      .bytes = bytes,
                      .fd = std::move(pages.value().fd),
                      .offset = shared.offset,
                      .writable = !(add.flags & VGPU_REGION_READ_ONLY)});
  return shared;
}

void Connection::add(const RingRequest& request, const vgpu_ctl_add_region& add) {
  uint64_t address = 0;
  auto made = share(request, add, &address);
  if (!made.ok()) return refuse(request.tag, made.status());
  const Shared shared = made.value();
  vgpu_ctl_add_region head = add;
  head.segments = 1;
  std::vector<uint8_t> body;
  append(head, &body);
  append(vgpu_segment{address, uint64_t{shared.count} * VGPU_XEN_PAGE_BYTES}, &body);
  const Key key{add.header.process, add.header.type == VGPU_CTL_ADD_RING, add.id};
  forward(request.tag, std::move(body), [key, shared](Connection& self, uint32_t status) {
    // The session does not take an id twice; should it, the older pages go with the connection.
    if (status != 0 || !self.shared_.emplace(key, shared).second) self.release(shared);
  });
}

void Connection::forward(uint32_t tag, std::vector<uint8_t> body,
                         std::function<void(Connection&, uint32_t status)> then) {
  sink_.on_control(std::move(body), [weak = weak_from_this(), tag, then = std::move(then),
                                     answered = false](const vgpu_ctl_reply& reply) mutable {
    const auto self = weak.lock();
    if (!self || std::exchange(answered, true)) return;
    if (then) then(*self, reply.status);
    self->answer(tag, reply);
  });
}

// One notification for all that one turn has answered.
void Connection::answer(uint32_t tag, const vgpu_ctl_reply& reply) {
  ring_.answer(tag, reply);
  if (serving_) {
    notify_later_ = true;
  } else {
    notify_();
  }
}

void Connection::refuse(uint32_t tag, const Status& status) {
  vgpu_ctl_reply reply{};
  reply.status = static_cast<uint32_t>(status.code());
  status.message().copy(reply.message, sizeof reply.message - 1);
  answer(tag, reply);
}

// The pages are ours until the session has let go of them.
void Connection::release(const Shared& shared) {
  sink_.on_ram_removed(shared.ram, [weak = weak_from_this(), ram = shared.ram] {
    if (const auto self = weak.lock()) self->withdraw(ram);
  });
}

void Connection::withdraw(uint32_t ram) {
  const auto found = offered_.find(ram);
  if (found == offered_.end()) return;
  grants_.withdraw(found->second.offset, found->second.count);
  pages_ -= found->second.count;
  offered_.erase(found);
}

void Connection::withdraw_all() {
  shared_.clear();
  while (!offered_.empty()) withdraw(offered_.begin()->first);
}

void Connection::release(Key key) {
  const auto found = shared_.find(key);
  if (found == shared_.end()) return;
  const Shared shared = found->second;
  shared_.erase(found);
  release(shared);
}

void Connection::release_process(uint32_t process) {
  const auto first = shared_.lower_bound({process, false, 0});
  auto last = first;
  std::vector<Shared> all;
  for (; last != shared_.end() && std::get<0>(last->first) == process; ++last) all.push_back(last->second);
  shared_.erase(first, last);
  for (const Shared& shared : all) release(shared);
}

Status Connection::post_event(vgpu_event_type type, uint32_t process) {
  const auto same = [&](const vgpu_event& event) { return event.type == type && event.process == process; };
  if (std::none_of(events_.begin(), events_.end(), same)) events_.push_back({static_cast<uint32_t>(type), process});
  return flush_events();
}

Status Connection::flush_events() {
  bool put = false;
  for (bool room = true; room && !events_.empty();) {
    if (Status status = ring_.put(events_.front(), room); !status.ok()) return status;
    if (!room) break;
    events_.pop_front();
    put = true;
  }
  if (put && serving_) notify_later_ = true;
  if (put && !serving_) notify_();
  return {};
}

}  // namespace bandsaw::xen
