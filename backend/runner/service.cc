#include "backend/runner/service.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>

#include "backend/runner/saved/saved_memory.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr size_t kDescriptorsMax = 6;
constexpr std::string_view kContextsAreOff = "contexts that have left the GPU (it must run when it is saved so)";

// Where in kAssign's descriptors what stands.
enum : size_t { kKick, kWake, kUsagePage, kLimitsPage, kDoorbell, kArena };

Status failed(const char* what, int error) {
  return error == 0 ? Status() : Status::error(error, "{}: {}", what, std::strerror(error));
}

}  // namespace

Service::Service(UniqueFd socket, Process* process)
    : socket_(std::move(socket)), process_(process), buffer_(kRunnerMessageMax) {
  process_->exchange().connect(socket_.get());
}

bool Service::send(const RunnerMessage& message) const {
  return ::send(socket_.get(), &message, sizeof(message), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(message));
}

void Service::answer(uint32_t serial, int error) const {
  RunnerMessage message;
  message.type = RunnerMessageType::kDone;
  message.id = serial;
  message.value = static_cast<uint64_t>(error);
  if (!send(message)) log::warn("cannot answer the session: {}", std::strerror(errno));
}

Result<Service::Received> Service::receive(Message* message) {
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
  iovec part{buffer_.data(), buffer_.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do {
    got = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got == 0 || (got < 0 && errno == ECONNRESET)) return Received::kEnd;
  if (got < 0) return Status::system("the session's socket");
  message->fds.clear();
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      message->fds.emplace_back(fd);
    }
  }
  if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) return Status::error(EMSGSIZE, "the session's message is cut off");
  if (static_cast<size_t>(got) < sizeof(RunnerMessage)) return Status::error(EPROTO, "a message of {} bytes", got);
  std::memcpy(&message->header, buffer_.data(), sizeof(RunnerMessage));
  message->tail = std::span(buffer_).subspan(sizeof(RunnerMessage), static_cast<size_t>(got) - sizeof(RunnerMessage));
  if (message->header.tail_in_file != 0) {
    if (Status status = take_tail_file(message); !status.ok()) return status;
  }
  return Received::kMessage;
}

// A tail that is too long for a socket, from the last descriptor.
Status Service::take_tail_file(Message* message) {
  struct stat info{};
  if (message->fds.empty() || fstat(message->fds.back().get(), &info) != 0) {
    return Status::error(EPROTO, "a message's tail should be in a file, and there is none");
  }
  const UniqueFd file = std::move(message->fds.back());
  message->fds.pop_back();
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes > buffer_.size()) return Status::error(EMSGSIZE, "a message's tail of {} bytes", bytes);
  for (size_t at = 0; at < bytes;) {
    const ssize_t got = pread(file.get(), buffer_.data() + at, bytes - at, static_cast<off_t>(at));
    if (got <= 0) return Status::system("reading a message's tail");
    at += static_cast<size_t>(got);
  }
  message->tail = std::span(buffer_).first(bytes);
  return {};
}

Status Service::assign(Message& message) {
  AssignTail tail;
  if (record_loop_) return Status::error(EALREADY, "the runner is assigned already");
  if (message.tail.size() != sizeof(tail))
    return Status::error(EPROTO, "an assignment of {} bytes", message.tail.size());
  std::memcpy(&tail, message.tail.data(), sizeof(tail));
  if (message.fds.size() != (tail.direct ? kArena + 1 : kDoorbell + 1)) {
    return Status::error(EPROTO, "an assignment with {} descriptors", message.fds.size());
  }
  if (Status status = process_->usage_page().map(message.fds[kUsagePage], tail.usage_slot, message.fds[kLimitsPage]);
      !status.ok()) {
    return status;
  }
  if (Status status = process_->use_part(tail.part); !status.ok()) return status;
  if (Status status = process_->start_guard(); !status.ok()) return status;
  process_->gate().connect(&process_->usage_page().grant_page(), tail.usage_slot, std::move(message.fds[kDoorbell]));
  if (tail.direct) {
    struct stat info{};
    UniqueFd& arena = message.fds[kArena];
    if (fstat(arena.get(), &info) != 0) return Status::system("the arena");
    const auto bytes = static_cast<uint64_t>(info.st_size);
    if (Status status = process_->memory().add_ram(0, std::move(arena), bytes, 0); !status.ok()) return status;
    process_->set_waker(make_futex_waker());
  } else {
    process_->set_waker(make_event_waker(std::move(message.fds[kWake])));
  }
  process_->swapper().book().set_ask([this] {
    if (!send({.type = RunnerMessageType::kAsksRoom})) log::warn("cannot reach the session: {}", std::strerror(errno));
  });
  record_loop_ = std::make_unique<RecordLoop>(process_, std::move(message.fds[kKick]));
  record_loop_->set_on_call_waits([this] {
    if (!send({.type = RunnerMessageType::kCallWaits})) log::warn("cannot reach the session: {}", std::strerror(errno));
  });
  record_loop_->start();
  tail.vgpu[sizeof(tail.vgpu) - 1] = tail.comm[sizeof(tail.comm) - 1] = '\0';
  log::info("serves {} of guest process {} ({})", tail.vgpu, tail.guest_pid, tail.comm);
  return {};
}

Status Service::add_ram(Message& message) {
  if (message.fds.size() != 1) return Status::error(EPROTO, "RAM with {} descriptors", message.fds.size());
  const RunnerMessage& header = message.header;
  return process_->memory().add_ram(header.id, std::move(message.fds[0]), header.value, header.offset);
}

Status Service::add_ring(const Message& message, std::span<const RunnerSegment> segments) {
  const bool goes_on = message.header.offset == kRingGoesOn;
  auto ring = process_->add_ring(message.header.id, message.header.value, message.header.flags, segments, goes_on);
  if (!ring.ok()) return ring.status();
  if (goes_on) {
    going_on_.push_back(std::move(ring.value()));
  } else {
    record_loop_->add_ring(std::move(ring.value()));
  }
  return {};
}

// What the process has beside its memory only the driver can tell.
Status Service::write_saved(int pipe, bool contexts_off) {
  if (contexts_off) return failed("its objects are not saved", write_state(pipe, {}, kContextsAreOff));
  ProcessState state;
  state.last_seq = record_loop_->last_seq();
  const std::string words = process_->describe(&state);
  if (!words.empty()) log::info("another runner could not have {}", words);
  const std::vector<std::byte> bytes = words.empty() ? to_bytes(state) : std::vector<std::byte>();
  return failed("its objects are not saved", write_state(pipe, bytes, words));
}

Status Service::make_saved(int pipe) {
  std::vector<std::byte> bytes;
  if (const int error = read_state(pipe, &bytes); error != 0) return failed("no objects have come", error);
  const auto state = read_process_state(bytes);
  if (!state.ok()) return state.status();
  std::vector<AgainRecord> again;
  Status status = process_->make_again(state.value());
  if (status.ok()) status = process_->go_on(state.value(), &again);
  if (status.ok()) status = failed("its memory does not leave the device", process_->move_memory(false));
  if (!status.ok()) return status;
  record_loop_->go_on(state.value().last_seq, std::move(again));
  for (CommandRingRef& ring : std::exchange(going_on_, {})) record_loop_->add_ring(std::move(ring));
  return {};
}

Status Service::save_memory(const Message& message) {
  const uint32_t what = message.header.flags;
  const int pipe = message.fds.empty() ? -1 : message.fds[0].get();
  if (!process_->standstill().at_rest()) return Status::error(EBUSY, "records are executed");
  if (what == kSavedMake) {
    if (Status status = make_saved(pipe); !status.ok()) return status;
  }
  if (what == kSavedWrite) {
    if (Status status = write_saved(pipe, message.header.value == kContextsOff); !status.ok()) return status;
  }
  const auto away = process_->memory_away();  // with what describing it has taken along
  if (!away) return Status::error(ENOTSUP, "memory cannot be reached");
  return failed("memory is not saved or restored", save_away_memory(*away, what, pipe));
}

// Drops and standstills answer for themselves, when they are done.
Status Service::handle(Message& message) {
  const RunnerMessage& header = message.header;
  if (header.type == RunnerMessageType::kAssign) return assign(message);
  if (header.type == RunnerMessageType::kExchanged) {
    process_->exchange().answered(header, message.tail, std::move(message.fds));
    return {};
  }
  if (header.type == RunnerMessageType::kRevoked) return process_->exchange().revoked(message.tail);
  if (!record_loop_) return Status::error(EPROTO, "message {} before the assignment", static_cast<int>(header.type));
  std::vector<RunnerSegment> segments(header.count);
  if (message.tail.size() != segments.size() * sizeof(RunnerSegment)) {
    return Status::error(EPROTO, "{} segments in {} bytes", header.count, message.tail.size());
  }
  if (!segments.empty()) std::memcpy(segments.data(), message.tail.data(), message.tail.size());
  auto done = [this, serial = header.serial] { answer(serial, 0); };
  switch (header.type) {
    case RunnerMessageType::kRamAdd:
      return add_ram(message);
    case RunnerMessageType::kRamDrop:
      return process_->memory().drop_ram(header.id);
    case RunnerMessageType::kAddRing:
      return add_ring(message, segments);
    case RunnerMessageType::kAddRegion:
      return process_->memory().add_region(header.id, header.value, header.flags, segments);
    case RunnerMessageType::kDropRing:
      record_loop_->drop_ring(header.id, done);
      return {};
    case RunnerMessageType::kDropRegion:
      return process_->memory().drop_region(header.id, done);
    case RunnerMessageType::kStandstill:
      process_->standstill().begin(
          std::chrono::milliseconds(header.value), [this, serial = header.serial](int error) { answer(serial, error); },
          (header.flags & kIfIdle) != 0);
      record_loop_->wake();
      return {};
    case RunnerMessageType::kMoveMemory: {
      const int error = process_->move_memory((header.flags & kToDevice) != 0);
      if (error == 0) return {};
      return Status::error(error, "memory does not move {} the device: {}", header.flags & kToDevice ? "to" : "off",
                           std::strerror(error));
    }
    case RunnerMessageType::kSaveMemory:
      return save_memory(message);
    case RunnerMessageType::kGoOn:
      if (on_go_on_) on_go_on_();
      process_->standstill().end();
      record_loop_->wake();
      return {};
    case RunnerMessageType::kFail:
      process_->fail(static_cast<CUresult>(header.value));
      return {};
    default:
      return Status::error(EPROTO, "unknown message {}", static_cast<int>(header.type));
  }
}

bool Service::send_ready() const {
  struct {
    RunnerMessage message;
    vgpu_device_info info{};
  } ready;
  static_assert(sizeof(ready) == sizeof(RunnerMessage) + sizeof(vgpu_device_info));
  ready.message.type = RunnerMessageType::kReady;
  ready.message.value = process_->memory().window().base();
  process_->device_info(&ready.info);
  return ::send(socket_.get(), &ready, sizeof(ready), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(ready));
}

Status Service::run() {
  if (!send_ready()) return Status::system("telling the session that the runner is ready");
  for (;;) {
    Message message;
    auto received = receive(&message);
    if (!received.ok()) return received.status();
    if (received.value() == Received::kEnd || message.header.type == RunnerMessageType::kEnd) return {};
    const Status status = handle(message);
    const RunnerMessageType type = message.header.type;
    const bool answers_later = type == RunnerMessageType::kDropRing || type == RunnerMessageType::kDropRegion ||
                               type == RunnerMessageType::kStandstill;
    if (!status.ok()) log::error("message {}: {}", static_cast<int>(message.header.type), status.message());
    if (!status.ok() || !answers_later) answer(message.header.serial, status.code());
  }
}

}  // namespace bandsaw::runner
