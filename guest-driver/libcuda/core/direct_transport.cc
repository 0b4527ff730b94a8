// Direct mode: a container or process on the host itself. Control requests go over the session's Unix socket; command
// rings and shared memory are parts of an arena, a memfd that the session made (vgpu_control.h).
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "guest-driver/libcuda/core/direct_link.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kLargeAlign = 2u << 20;
constexpr int64_t kLookMs = 100;  // between two looks at the nice value

class DirectTransport : public Transport {
 public:
  DirectTransport(GuestSpace* space, uint32_t part) : space_(space), link_(space, part) {}

  bool open(const std::string& path, TransportFailure* failure) { return link_.open(path, &host_, failure); }

  uint64_t window_base() const override { return space_->window.base(); }
  int add_ring(vgpu_ring_header** ring) override;
  int allocate(uint64_t bytes, uint32_t flags, SharedBlock* block) override;
  int release(const SharedBlock& block) override;
  int pin(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block) override;
  int unpin(const SharedBlock& block) override;
  int also(const SharedBlock& block, SharedBlock* again) override;
  int share_at(const SharedBlock& block, void* address, uint32_t flags, SharedBlock* again) override;
  int share_file(int file, uint64_t offset, uint64_t bytes, void* address, uint32_t flags, SharedBlock* block) override;
  int back(uint64_t address, uint64_t bytes, SharedBlock* block) override;
  int unback(const SharedBlock& block) override;
  bool untouched(uint64_t address, uint64_t bytes) override;
  void kick() override { link_.kick(); }
  int wait(vgpu_ring_header* ring, uint64_t* seen, uint32_t timeout_ms) override;
  uint64_t snapshot(vgpu_ring_header* ring) override { return wake_word(ring).load(std::memory_order_acquire); }
  bool alive() override { return link_.alive(); }
  void forget_in_child() override { link_.forget_in_child(); }

 private:
  static std::atomic_ref<uint32_t> wake_word(vgpu_ring_header* ring) { return std::atomic_ref<uint32_t>(ring->wake); }
<<<<<<< HEAD
  bool connect_to(const std::string& path, TransportFailure* failure);
  bool hello(TransportFailure* failure);
  // One request and its reply. `descriptors` may be null; else two are expected. `sent` goes along unless it is -1.
  int ask(const void* request, size_t bytes, vgpu_ctl_reply* reply, int* descriptors, int sent = -1);
  static ssize_t send_with(int socket, const void* request, size_t bytes, int descriptor);
  int ask(const void* request, size_t bytes) {
    vgpu_ctl_reply reply;
    const int error = ask(request, bytes, &reply, nullptr);
    return error ? error : static_cast<int>(reply.status);
  }
  // `file`: whose pages they are; -1: the arena's.
  int announce(uint32_t type, uint32_t id, uint32_t flags, uint64_t va, uint64_t offset, uint64_t bytes, int file = -1);
  int drop(uint32_t type, uint32_t id);
  void send_nice(int nice);
  void look_at_nice();
=======
>>>>>>> 9cdfda22 (session, libcuda, runner, vgpuctl: programs that were saved outlive their session)
  // Maps an unused part of the arena. Returns its offset, or Window::kNone.
  uint64_t map_range(uint64_t bytes);
  void close_backed(const SharedBlock& block);
  void unmap_range(uint64_t offset, uint64_t bytes);

  GuestSpace* const space_;
  DirectLink link_;
  std::atomic<uint32_t> next_ring_{0}, next_region_{1};
  std::atomic<int> nice_{0};              // as the session knows it
  std::atomic<int64_t> next_look_ms_{0};  // when to look whether it is still that
  std::mutex backed_mutex_;
  std::map<uint64_t, uint64_t> backed_;  // guarded by backed_mutex_: address of back() -> offset in the arena
};

<<<<<<< HEAD
bool DirectTransport::connect_to(const std::string& path, TransportFailure* failure) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  failure->error = CUDA_ERROR_NO_DEVICE;
  if (path.size() >= sizeof(address.sun_path)) {
    failure->message = path + " is too long for a socket's name: set BANDSAW_RUN to a shorter directory";
    return false;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket_ >= 0 && connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return true;
  const bool denied = errno == EACCES || errno == EPERM;
  failure->message = "cannot reach the virtual GPU at " + path + " (" + std::strerror(errno) + "): " +
                     (denied ? "this user may not use it; `vgpuctl show` says whose it is"
                             : "see `vgpuctl list`; is vgpud running, and BANDSAW_VGPU the name of a virtual GPU?");
  return false;
}

bool DirectTransport::hello(TransportFailure* failure) {
  vgpu_ctl_create_process request{};
  request.header = {VGPU_CTL_CREATE_PROCESS, kProcess};
  request.schema = wire::kSchema;
  request.schema.part = static_cast<__le16>(part_);
  request.pid = static_cast<__le32>(getpid());
  request.uid = getuid();
  const char* name = std::strrchr(program_invocation_name, '/');
  std::strncpy(reinterpret_cast<char*>(request.comm), name ? name + 1 : program_invocation_name,
               sizeof(request.comm) - 1);
  vgpu_ctl_reply reply;
  int descriptors[2] = {-1, -1};
  int error = ask(&request, sizeof(request), &reply, descriptors, space_->arena);
  kick_ = descriptors[1];
  if (space_->arena < 0) {
    space_->arena = descriptors[0];
  } else if (descriptors[0] >= 0) {
    close(descriptors[0]);
  }
  host_ = reply.schema;
  if (!error) error = static_cast<int>(reply.status);
  failure->error = CUDA_ERROR_NO_DEVICE;
  if (error == EPROTO) {
    release_mismatch(host_, failure);
  } else if (error) {
    reply.message[sizeof(reply.message) - 1] = 0;
    failure->message = std::string("the virtual GPU refused this process: ") +
                       (error != EPIPE && reply.message[0] ? reply.message : std::strerror(error));
  } else if (space_->arena < 0 || kick_ < 0) {
    failure->message = "the session did not hand over its descriptors";
  } else {
    look_at_nice();
    return agree(&space_->window, reply.value, part_, &host_, failure);
  }
  return false;
}

// The program may be reniced while it runs: the main thread's nice value counts. The clock is one that is cheap to
// read.
void DirectTransport::look_at_nice() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t now_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  int64_t due = next_look_ms_.load(std::memory_order_relaxed);
  if (now_ms < due || !next_look_ms_.compare_exchange_strong(due, now_ms + kLookMs)) return;
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, static_cast<id_t>(getpid()));
  if (errno == 0 && nice_.exchange(nice) != nice) send_nice(nice);
}

// A host that does not know of it refuses it: then all programs are equal.
void DirectTransport::send_nice(int nice) {
  vgpu_ctl_priority request{};
  request.header = {VGPU_CTL_PRIORITY, kProcess};
  request.nice = static_cast<__le32>(nice);
  (void)ask(&request, sizeof(request));
}

ssize_t DirectTransport::send_with(int socket, const void* request, size_t bytes, int descriptor) {
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

int DirectTransport::ask(const void* request, size_t bytes, vgpu_ctl_reply* reply, int* descriptors, int sent) {
  *reply = {};
  std::lock_guard lock(mutex_);
  ssize_t count;
  do {
    count = send_with(socket_, request, bytes, sent);
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
    count = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(sizeof(*reply))) return EPIPE;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int received[2] = {-1, -1};
    std::memcpy(received, CMSG_DATA(c), std::min(sizeof(received), c->cmsg_len - CMSG_LEN(0)));
    for (int i = 0; i < 2; i++) {
      if (descriptors) {
        descriptors[i] = received[i];
      } else if (received[i] >= 0) {
        close(received[i]);
      }
    }
  }
  return 0;
}

int DirectTransport::announce(uint32_t type, uint32_t id, uint32_t flags, uint64_t va, uint64_t offset, uint64_t bytes,
                              int file) {
  struct {
    vgpu_ctl_add_region region;
    vgpu_segment segment;
  } request{};
  static_assert(sizeof(request) == sizeof(vgpu_ctl_add_region) + sizeof(vgpu_segment));
  request.region.header = {type, kProcess};
  request.region.id = id;
  request.region.flags = flags;
  request.region.va = va;
  request.region.bytes = bytes;
  request.region.segments = 1;
  request.segment = {offset, bytes};
  vgpu_ctl_reply reply;
  const int error = ask(&request, sizeof(request), &reply, nullptr, file);
  if (error || !reply.status) return error;
  reply.message[sizeof(reply.message) - 1] = 0;
  log(Level::kInfo, "the session refused %#llx bytes at %#llx: %s", static_cast<unsigned long long>(bytes),
      static_cast<unsigned long long>(va), reply.message);
  return static_cast<int>(reply.status);
}

int DirectTransport::drop(uint32_t type, uint32_t id) {
  vgpu_ctl_drop request{};
  request.header = {type, kProcess};
  request.id = id;
  return ask(&request, sizeof(request));
}

=======
>>>>>>> 9cdfda22 (session, libcuda, runner, vgpuctl: programs that were saved outlive their session)
uint64_t DirectTransport::map_range(uint64_t bytes) {
  const uint64_t offset = space_->window.take(bytes, bytes >= kLargeAlign ? kLargeAlign : kPage);
  if (offset == Window::kNone) return offset;
  void* const place = reinterpret_cast<void*>(space_->window.base() + offset);
  if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, space_->arena, static_cast<off_t>(offset)) !=
      place) {
    space_->window.give_back(offset, bytes);
    return Window::kNone;
  }
  return offset;
}

void DirectTransport::unmap_range(uint64_t offset, uint64_t bytes) {
  mmap(reinterpret_cast<void*>(space_->window.base() + offset), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  // Gives the memory back to the host, and the range reads as zeros again. If that fails the range is kept, because its
  // next owner expects zeros.
  if (fallocate(space_->arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes)) == 0) {
    space_->window.give_back(offset, bytes);
  }
}

int DirectTransport::add_ring(vgpu_ring_header** ring) {
  const uint32_t id = next_ring_.fetch_add(1);
  if (id >= VGPU_RINGS_MAX) return ENOSPC;
  const uint64_t offset = map_range(VGPU_RING_BYTES);
  if (offset == Window::kNone) return ENOMEM;
  const uint64_t address = space_->window.base() + offset;
  madvise(reinterpret_cast<void*>(address), VGPU_RING_BYTES, MADV_DONTFORK);
  auto* header = reinterpret_cast<vgpu_ring_header*>(address);
  header->magic = VGPU_RING_MAGIC;
  if (const int error = link_.announce(VGPU_CTL_ADD_RING, id, 0, address, offset, VGPU_RING_BYTES)) {
    unmap_range(offset, VGPU_RING_BYTES);
    return error;
  }
  *ring = header;
  return 0;
}

int DirectTransport::allocate(uint64_t bytes, uint32_t flags, SharedBlock* block) {
  const uint64_t offset = map_range(bytes);
  if (offset == Window::kNone) return ENOMEM;
  const uint64_t address = space_->window.base() + offset;
  const uint32_t id = next_region_.fetch_add(1);
  if (const int error = link_.announce(VGPU_CTL_ADD_REGION, id, flags, address, offset, bytes)) {
    unmap_range(offset, bytes);
    return error;
  }
  *block = {reinterpret_cast<void*>(address), bytes, id, flags};
  return 0;
}

int DirectTransport::release(const SharedBlock& block) {
  const int error = link_.drop(VGPU_CTL_DROP_REGION, block.region);
  if (error == 0 || error == EPIPE) {
    unmap_range(reinterpret_cast<uint64_t>(block.address) - space_->window.base(), block.bytes);
  }
  return error;
}

int DirectTransport::pin(void*, uint64_t, uint32_t, SharedBlock*) { return ENOTSUP; }
int DirectTransport::unpin(const SharedBlock& block) { return link_.drop(VGPU_CTL_DROP_REGION, block.region); }

int DirectTransport::also(const SharedBlock& block, SharedBlock* again) {
  return share_at(block, block.address, block.flags, again);
}

int DirectTransport::share_at(const SharedBlock& block, void* address, uint32_t flags, SharedBlock* again) {
  const uint32_t id = next_region_.fetch_add(1);
  const uint64_t offset = reinterpret_cast<uint64_t>(block.address) - space_->window.base();
  const int error =
      link_.announce(VGPU_CTL_ADD_REGION, id, flags, reinterpret_cast<uint64_t>(address), offset, block.bytes);
  if (!error) *again = {address, block.bytes, id, flags};
  return error;
}

int DirectTransport::share_file(int file, uint64_t offset, uint64_t bytes, void* address, uint32_t flags,
                                SharedBlock* block) {
  const uint32_t id = next_region_.fetch_add(1);
  const auto va = reinterpret_cast<uint64_t>(address);
  const int error = link_.announce(VGPU_CTL_ADD_REGION, id, flags | VGPU_REGION_OF_FILE, va, offset, bytes, file);
  if (!error) *block = {address, bytes, id, flags};
  return error;
}

int DirectTransport::back(uint64_t address, uint64_t bytes, SharedBlock* block) {
  const uint64_t offset = space_->window.take(bytes, bytes >= kLargeAlign ? kLargeAlign : kPage);
  if (offset == Window::kNone) return ENOMEM;
  void* const place = reinterpret_cast<void*>(address);
  int error = 0;
  if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, space_->arena, static_cast<off_t>(offset)) !=
      place) {
    error = errno;
    space_->window.give_back(offset, bytes);
    return error;
  }
  const uint32_t id = next_region_.fetch_add(1);
  error = link_.announce(VGPU_CTL_ADD_REGION, id, 0, address, offset, bytes);
  *block = {place, bytes, id, 0};
  std::lock_guard lock(backed_mutex_);
  backed_[address] = offset;
  if (!error) return 0;
  close_backed(*block);
  return error;
}

int DirectTransport::unback(const SharedBlock& block) {
  const int error = link_.drop(VGPU_CTL_DROP_REGION, block.region);
  if (error && error != EPIPE) return error;
  std::lock_guard lock(backed_mutex_);
  close_backed(block);
  return error;
}

// With backed_mutex_ held.
void DirectTransport::close_backed(const SharedBlock& block) {
  const auto found = backed_.find(reinterpret_cast<uint64_t>(block.address));
  const auto offset = static_cast<off_t>(found->second);
  backed_.erase(found);
  mmap(block.address, block.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (fallocate(space_->arena, punch, offset, static_cast<off_t>(block.bytes)) == 0) {
    space_->window.give_back(static_cast<uint64_t>(offset), block.bytes);
  }
}

bool DirectTransport::untouched(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(backed_mutex_);
  auto next = backed_.upper_bound(address);
  if (next == backed_.begin()) return false;
  const auto& [begin, offset] = *std::prev(next);
  const auto first = static_cast<off_t>(offset + (address - begin));
  const off_t data = lseek(space_->arena, first, SEEK_DATA);
  return data < 0 ? errno == ENXIO : data >= first + static_cast<off_t>(bytes);
}

int DirectTransport::wait(vgpu_ring_header* ring, uint64_t* seen, uint32_t timeout_ms) {
  look_at_nice();
  timespec limit{timeout_ms / 1000, static_cast<long>(timeout_ms % 1000) * 1'000'000};
  // Not FUTEX_PRIVATE: the runner wakes us from its own process.
  const long slept = syscall(SYS_futex, &ring->wake, FUTEX_WAIT, static_cast<uint32_t>(*seen), &limit, nullptr, 0);
  const int error = slept == 0 || errno == EAGAIN ? 0 : errno;
  *seen = snapshot(ring);
  return error;
}

}  // namespace

std::unique_ptr<Transport> open_direct(const std::string& path, uint32_t part, GuestSpace* space,
                                       TransportFailure* failure) {
  auto transport = std::make_unique<DirectTransport>(space, part);
  if (!transport->open(path, failure)) return nullptr;
  return transport;
}

}  // namespace bandsaw::libcuda
