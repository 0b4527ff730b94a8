#include "guest-driver/libcuda/core/direct_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>

#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint32_t kProcess = 1;
constexpr int64_t kLookMs = 100;  // between two looks at the nice value
// Between looks for another session.
constexpr useconds_t kFirstPause = 50'000, kLongestPause = 1'000'000;

// `descriptor` goes along unless it is -1.
ssize_t send_with(int socket, const void* request, size_t bytes, int descriptor) {
  iovec vector{const_cast<void*>(request), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &descriptor, sizeof(descriptor));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

// One request and its reply. Descriptors that come are the caller's; null: nobody wants them.
int exchange(int socket, const void* request, size_t bytes, vgpu_ctl_reply* reply, int (*descriptors)[2], int sent) {
  *reply = {};
  ssize_t count;
  do {
    count = send_with(socket, request, bytes, sent);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(bytes)) return errno == EMSGSIZE ? E2BIG : EPIPE;
  iovec vector{reply, sizeof(*reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  do {
    count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(sizeof(*reply))) return EPIPE;
  reply->message[sizeof(reply->message) - 1] = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int received[2] = {-1, -1};
    std::memcpy(received, CMSG_DATA(c), std::min(sizeof(received), c->cmsg_len - CMSG_LEN(0)));
    for (int i = 0; i < 2; i++) {
      if (descriptors) {
        (*descriptors)[i] = received[i];
      } else if (received[i] >= 0) {
        close(received[i]);
      }
    }
  }
  return 0;
}

// Of a request whose answer is its status.
int exchange(int socket, const void* request, size_t bytes) {
  vgpu_ctl_reply reply;
  const int error = exchange(socket, request, bytes, &reply, nullptr, -1);
  return error ? error : static_cast<int>(reply.status);
}

// -1: errno says why.
int connected(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size() + 1, sizeof(address.sun_path)));
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (made < 0 || connect(made, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return made;
  const int error = errno;
  close(made);
  errno = error;
  return -1;
}

struct AddRequest {
  vgpu_ctl_add_region region;
  vgpu_segment segment;
};
static_assert(sizeof(AddRequest) == sizeof(vgpu_ctl_add_region) + sizeof(vgpu_segment));

AddRequest add_request(uint32_t type, uint32_t id, uint32_t flags, uint64_t va, uint64_t offset, uint64_t bytes) {
  AddRequest request{};
  request.region.header = {type, kProcess};
  request.region.id = id;
  request.region.flags = flags;
  request.region.va = va;
  request.region.bytes = bytes;
  request.region.segments = 1;
  request.segment = {offset, bytes};
  return request;
}

// The main thread's counts.
std::optional<int> own_nice() {
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(getpid()));
  return errno == 0 ? std::optional(nice) : std::nullopt;
}

int exchange_nice(int socket, int nice) {
  vgpu_ctl_priority request{};
  request.header = {VGPU_CTL_PRIORITY, kProcess};
  request.nice = static_cast<__le32>(nice);
  return exchange(socket, &request, sizeof(request));
}

bool hung_up(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return poll(&entry, 1, 0) != 0;
}

}  // namespace

bool DirectLink::open(const std::string& path, vgpu_schema* host, TransportFailure* failure) {
  path_ = path;
  return connect_to(failure) && hello(host, failure);
}

bool DirectLink::connect_to(TransportFailure* failure) {
  failure->error = CUDA_ERROR_NO_DEVICE;
  if (path_.size() >= sizeof(sockaddr_un::sun_path)) {
    failure->message = path_ + " is too long for a socket's name: set BANDSAW_RUN to a shorter directory";
    return false;
  }
  socket_ = connected(path_);
  if (socket_ >= 0) return true;
  const bool denied = errno == EACCES || errno == EPERM;
  failure->message = "cannot reach the virtual GPU at " + path_ + " (" + std::strerror(errno) + "): " +
                     (denied ? "this user may not use it; `vgpuctl show` says whose it is"
                             : "see `vgpuctl list`; is vgpud running, and BANDSAW_VGPU the name of a virtual GPU?");
  return false;
}

vgpu_ctl_create_process DirectLink::who_asks(uint32_t type) const {
  vgpu_ctl_create_process request{};
  request.header = {type, kProcess};
  request.schema = wire::kSchema;
  request.schema.part = part_to_ask(space_->window, part_);
  request.pid = static_cast<__le32>(getpid());
  request.uid = getuid();
  const char* name = std::strrchr(program_invocation_name, '/');
  std::strncpy(reinterpret_cast<char*>(request.comm), name ? name + 1 : program_invocation_name,
               sizeof(request.comm) - 1);
  return request;
}

bool DirectLink::hello(vgpu_schema* host, TransportFailure* failure) {
  const vgpu_ctl_create_process request = who_asks(VGPU_CTL_CREATE_PROCESS);
  vgpu_ctl_reply reply;
  Descriptors descriptors = {-1, -1};
  int error = exchange(socket_, &request, sizeof(request), &reply, &descriptors, space_->arena);
  kick_ = descriptors[1];
  if (space_->arena < 0) {
    space_->arena = descriptors[0];
  } else if (descriptors[0] >= 0) {
    close(descriptors[0]);
  }
  *host = reply.schema;
  if (!error) error = static_cast<int>(reply.status);
  failure->error = CUDA_ERROR_NO_DEVICE;
  if (error == EPROTO) {
    release_mismatch(*host, failure);
  } else if (error) {
    failure->message = std::string("the virtual GPU refused this process: ") +
                       (error != EPIPE && reply.message[0] ? reply.message : std::strerror(error));
  } else if (space_->arena < 0 || kick_ < 0) {
    failure->message = "the session did not hand over its descriptors";
  } else {
    host_ = reply.schema;
    window_base_ = reply.value;
    std::memcpy(key_, reply.message, sizeof(key_));
    send_nice(socket_);
    return agree(&space_->window, reply.value, part_, host, failure);
  }
  return false;
}

// A host that does not know of it refuses it: then all programs are equal. A new session takes it to be 0.
void DirectLink::send_nice(int socket) {
  const std::optional<int> nice = own_nice();
  if (!nice) return;
  nice_ = *nice;
  if (*nice != 0) (void)exchange_nice(socket, *nice);
}

// The clock is one that is cheap to read.
void DirectLink::look_at_nice() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t now_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  int64_t due = next_look_ms_.load(std::memory_order_relaxed);
  if (now_ms < due || !next_look_ms_.compare_exchange_strong(due, now_ms + kLookMs)) return;
  const std::optional<int> nice = own_nice();
  if (!nice || nice_.exchange(*nice) == *nice) return;
  std::lock_guard lock(mutex_);
  (void)exchange_nice(socket_, *nice);
}

// A session that has ended has answered nothing, so another one may be asked the same.
int DirectLink::ask(const void* request, size_t bytes, vgpu_ctl_reply* reply, int sent) {
  for (;;) {
    const int error = exchange(socket_, request, bytes, reply, nullptr, sent);
    if (error != EPIPE || !come_back()) return error;
  }
}

int DirectLink::announce(uint32_t type, uint32_t id, uint32_t flags, uint64_t va, uint64_t offset, uint64_t bytes,
                         int file) {
  const AddRequest request = add_request(type, id, flags, va, offset, bytes);
  vgpu_ctl_reply reply;
  std::lock_guard lock(mutex_);
  const int error = ask(&request, sizeof(request), &reply, file);
  if (!error && !reply.status) announced_[{type, id}] = {flags, va, offset, bytes};
  if (error || !reply.status) return error;
  log(Level::kInfo, "the session refused %#llx bytes at %#llx: %s", static_cast<unsigned long long>(bytes),
      static_cast<unsigned long long>(va), reply.message);
  return static_cast<int>(reply.status);
}

int DirectLink::drop(uint32_t type, uint32_t id) {
  vgpu_ctl_drop request{};
  request.header = {type, kProcess};
  request.id = id;
  vgpu_ctl_reply reply;
  std::lock_guard lock(mutex_);
  const int error = ask(&request, sizeof(request), &reply);
  if (error || reply.status) return error ? error : static_cast<int>(reply.status);
  announced_.erase({type == VGPU_CTL_DROP_RING ? VGPU_CTL_ADD_RING : VGPU_CTL_ADD_REGION, id});
  return 0;
}

void DirectLink::kick() const {
  const uint64_t one = 1;
  // A full counter wakes the runner too.
  while (write(kick_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

bool DirectLink::alive() {
  if (!hung_up(socket_)) return true;
  std::lock_guard lock(mutex_);
  return !hung_up(socket_) || come_back();
}

// The session has said so in each ring, before it ended.
bool DirectLink::may_come_back() const {
  static constexpr __u8 kNone[VGPU_RETURN_KEY_BYTES] = {};
  const auto ring = announced_.lower_bound({VGPU_CTL_ADD_RING, 0});
  if (ring == announced_.end() || ring->first.first != VGPU_CTL_ADD_RING) return false;
  if (std::memcmp(key_, kNone, sizeof(key_)) == 0) return false;
  auto* const header = reinterpret_cast<vgpu_ring_header*>(ring->second.va);
  return std::atomic_ref<__u32>(header->away).load(std::memory_order_acquire) != 0;
}

bool DirectLink::come_back() {
  if (!may_come_back()) return false;
  notice("the virtual GPU has gone, and what this program had there is in a file: it waits until that is restored");
  std::string said;
  for (useconds_t pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    const std::string why = try_to_come_back();
    if (why.empty()) return true;
    if (why != said) log(Level::kInfo, "it waits on: %s", why.c_str());
    said = why;
    usleep(pause);
  }
}

std::string DirectLink::try_to_come_back() {
  const int socket = connected(path_);
  if (socket < 0) return path_ + ": " + std::strerror(errno);
  vgpu_ctl_return_process request{};
  request.create = who_asks(VGPU_CTL_RETURN_PROCESS);
  std::memcpy(request.key, key_, sizeof(key_));
  request.window_base = window_base_;
  vgpu_ctl_reply reply;
  Descriptors descriptors = {-1, -1};
  const int error = exchange(socket, &request, sizeof(request), &reply, &descriptors, space_->arena);
  std::string why;
  if (error || reply.status) {
    why = error ? std::strerror(error) : reply.message;
  } else if (std::memcmp(&reply.schema, &host_, sizeof(host_)) != 0) {
    why = "the host is of another release now: " + wire::release_of(reply.schema);
  } else if (reply.value != window_base_ || descriptors[1] < 0) {
    why = "the session's answer makes no sense";
  } else {
    why = tell_again(socket);
  }
  // Under their old numbers: other threads use them without the lock.
  if (why.empty() && (dup3(descriptors[1], kick_, O_CLOEXEC) < 0 || dup3(socket, socket_, O_CLOEXEC) < 0)) {
    why = std::strerror(errno);
  }
  for (const int descriptor : {descriptors[0], descriptors[1], socket}) {
    if (descriptor >= 0) close(descriptor);
  }
  return why;
}

std::string DirectLink::tell_again(int socket) {
  send_nice(socket);
  for (const auto& [name, what] : announced_) {
    const AddRequest request = add_request(name.first, name.second, what.flags, what.va, what.offset, what.bytes);
    vgpu_ctl_reply reply;
    const int error = exchange(socket, &request, sizeof(request), &reply, nullptr, -1);
    if (error) return std::strerror(error);
    if (reply.status) return reply.message;
  }
  const vgpu_ctl_header all{VGPU_CTL_ALL_ANNOUNCED, kProcess};
  const int error = exchange(socket, &all, sizeof(all));
  return error ? std::strerror(error) : "";
}

void DirectLink::forget_in_child() {
  for (int* descriptor : {&socket_, &kick_}) {
    if (*descriptor >= 0) close(std::exchange(*descriptor, -1));
  }
}

}  // namespace bandsaw::libcuda
