#include "hypervisor/vfio_user/connection.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "memory/base/log.h"

namespace bandsaw::vfio_user {

namespace {

constexpr size_t kOutMax = 8u << 20;  // a client that sends without reading is not served further
constexpr int kMessagesPerTurn = 64;  // then the loop's other events get their turn

}  // namespace

Connection::Connection(event_base* base, UniqueFd socket, Commands& commands, std::function<void()> on_end,
                       int listener)
    : commands_(commands),
      on_end_(std::move(on_end)),
      socket_(std::move(socket)),
      alive_(std::make_shared<bool>(true)) {
  evutil_make_socket_nonblocking(socket_.get());
  if (auto guardian = ConnectionGuardian::start(socket_.get(), listener); guardian.ok()) {
    guardian_ = std::move(guardian.value());
  } else {
    log::warn("{}: a crash of this process may end the hypervisor too", guardian.status().message());
  }
  read_.reset(event_new(
      base, socket_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Connection*>(self)->on_readable(); }, this));
  write_.reset(event_new(
      base, socket_.get(), EV_WRITE | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Connection*>(self)->on_writable(); }, this));
  event_add(read_.get(), nullptr);
  hold();  // of one that another process had
}

// For the guardian: where the stream is while a message is read.
void Connection::note_progress() {
  ConnectionGuardian::Progress* const progress = guardian_.progress();
  if (!progress) return;
  progress->header = message_.header;
  const bool skips = skip_ > 0, reads = !in_header_;
  progress->header_bytes = static_cast<uint32_t>(skips ? 0 : reads ? sizeof(Header) : received_);
  progress->left = skips ? skip_ : reads ? message_.payload.size() - received_ : 0;
}

void Connection::hold() {
  if (!guardian_.progress() || !commands_.held_changed()) return;
  HeldPacket packet;
  std::vector<int> fds;
  const size_t bytes = commands_.held(&packet, &fds);
  guardian_.hold(packet, bytes, fds);
}

Connection::~Connection() { *alive_ = false; }

void Connection::on_readable() {
  const std::shared_ptr<bool> alive = alive_;
  for (int i = 0; i < 2 * kMessagesPerTurn && *alive && !busy_ && !ended_ && !closing_; ++i)
    if (!receive()) break;
  if (*alive && ended_) report_end();
}

// Reads at most to the end of the current header or payload, so descriptors are never those of the next message.
bool Connection::receive() {
  std::array<uint8_t, 65536> waste;
  iovec part{};
  if (skip_ > 0) {
    part = {waste.data(), std::min<size_t>(skip_, waste.size())};
  } else if (in_header_) {
    part = {reinterpret_cast<uint8_t*>(&message_.header) + received_, sizeof(Header) - received_};
  } else {
    part = {message_.payload.data() + received_, message_.payload.size() - received_};
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 2 * kFdsMax)];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t count = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {
    end();
    return false;
  }
  take_fds(header);
  if (skip_ > 0) {
    skip_ -= static_cast<uint64_t>(count);
    message_.fds.clear();
    note_progress();
    return true;
  }
  received_ += static_cast<size_t>(count);
  if (in_header_ && received_ == sizeof(Header))
    header_complete();
  else if (!in_header_ && received_ == message_.payload.size())
    message_complete();
  else
    note_progress();
  return true;
}

void Connection::take_fds(const msghdr& header) {
  if (header.msg_flags & MSG_CTRUNC) message_.fds_cut = true;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(const_cast<msghdr*>(&header), item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      UniqueFd owned(fd);
      if (message_.fds.size() < kFdsMax)
        message_.fds.push_back(std::move(owned));
      else
        message_.fds_cut = true;
    }
  }
}

void Connection::header_complete() {
  const Header& header = message_.header;
  if (header.bytes < sizeof(Header)) {
    // Where the next message begins cannot be known.
    log::warn("vfio-user: message of {} bytes; closing the connection", header.bytes);
    reply(header, {EINVAL, {}});
    close_after_flush();
    return;
  }
  const uint64_t payload = header.bytes - sizeof(Header);
  received_ = 0;
  const uint32_t type = header.flags & kTypeMask;
  if (payload > kPayloadMax || type != kTypeCommand) {
    log::warn("vfio-user: message of {} bytes, type {}, refused", header.bytes, type);
    if (type != kTypeReply) reply(header, {payload > kPayloadMax ? EMSGSIZE : EINVAL, {}});
    message_ = {};
    skip_ = payload;
    note_progress();
    return;
  }
  message_.payload.resize(payload);
  in_header_ = false;
  if (payload == 0) return message_complete();
  note_progress();
}

void Connection::message_complete() {
  const Header header = message_.header;
  in_header_ = true;
  received_ = 0;
  busy_ = true;
  if (auto* const progress = guardian_.progress()) {
    progress->header = header;
    progress->unanswered = 1;
    progress->header_bytes = 0;
    progress->left = 0;
  }
  commands_.handle(std::exchange(message_, {}), [this, alive = alive_, header](Answer answer) {
    if (!*alive) return;
    busy_ = false;
    hold();  // first: QEMU may rely on it once it is answered
    if (auto* const progress = guardian_.progress()) progress->unanswered = 0;  // from here on nobody else answers
    reply(header, std::move(answer));
    // A late answer: what came meanwhile waits in the socket.
    if (!ended_ && !closing_) event_add(read_.get(), nullptr);
  });
  if (busy_) event_del(read_.get());
}

void Connection::reply(const Header& request, Answer answer) {
  if (ended_ || (request.flags & kFlagNoReply)) return;
  if (answer.error) answer.payload.clear();
  Header header{};
  header.id = request.id;
  header.command = request.command;
  header.bytes = static_cast<uint32_t>(sizeof(Header) + answer.payload.size());
  header.flags = kTypeReply | (answer.error ? kFlagError : 0);
  header.error = static_cast<uint32_t>(answer.error);
  std::vector<uint8_t> bytes(header.bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::copy(answer.payload.begin(), answer.payload.end(), bytes.begin() + sizeof(header));
  out_bytes_ += bytes.size();
  out_.push_back(std::move(bytes));
  flush();
  if (out_bytes_ > kOutMax) {
    log::warn("vfio-user: the client does not read its replies");
    end();
  }
}

void Connection::flush() {
  while (!out_.empty()) {
    const std::vector<uint8_t>& first = out_.front();
    const ssize_t sent =
        send(socket_.get(), first.data() + out_sent_, first.size() - out_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR) return end();
      if (auto* const progress = guardian_.progress()) progress->unsent = 1;
      event_add(write_.get(), nullptr);
      return;
    }
    out_sent_ += static_cast<size_t>(sent);
    if (out_sent_ < first.size()) continue;
    out_bytes_ -= first.size();
    out_sent_ = 0;
    out_.pop_front();
  }
  event_del(write_.get());
  if (auto* const progress = guardian_.progress()) progress->unsent = 0;
  if (closing_) end();
}

void Connection::on_writable() {
  flush();
  if (ended_) report_end();
}

void Connection::close_after_flush() {
  closing_ = true;
  if (out_.empty()) end();
}

// The function may destroy this object, and itself with it.
void Connection::report_end() {
  if (auto on_end = std::exchange(on_end_, nullptr)) on_end();
}

// Only marks the end; report_end is called from the loop's own callbacks, which touch nothing of this object after it.
void Connection::end() {
  if (std::exchange(ended_, true)) return;
  event_del(write_.get());
  event_active(read_.get(), EV_READ, 0);
}

}  // namespace bandsaw::vfio_user
