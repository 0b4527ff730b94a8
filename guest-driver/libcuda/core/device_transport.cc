// In a VM: the character device of the virtio_vgpu module (guest-driver/uapi/vgpu_ioctl.h).
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/uapi/vgpu_ioctl.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kHugePage = 2u << 20;
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

class DeviceTransport : public Transport {
 public:
  DeviceTransport(GuestSpace* space, uint32_t part) : space_(space), part_(part) {}
  ~DeviceTransport() override { forget_in_child(); }

  bool open(const std::string& path, TransportFailure* failure);

  uint64_t window_base() const override { return space_->window.base(); }
  int add_ring(vgpu_ring_header** ring) override;
  int allocate(uint64_t bytes, uint32_t flags, SharedBlock* block) override;
  int release(const SharedBlock& block) override;
  int pin(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block) override;
  int unpin(const SharedBlock& block) override;
  int also(const SharedBlock& block, SharedBlock* again) override {
    return pin(block.address, block.bytes, block.flags, again);
  }
  int back(uint64_t address, uint64_t bytes, SharedBlock* block) override;
  int unback(const SharedBlock& block) override;
  int pin_watched(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block, const uint32_t** word) override;
  void kick() override { call(VGPU_IOC_KICK, nullptr); }
  int wait(vgpu_ring_header* ring, uint64_t* seen, uint32_t timeout_ms) override;
  uint64_t snapshot(vgpu_ring_header*) override { return last_seen_.load(std::memory_order_acquire); }
  bool alive() override;
  void forget_in_child() override {
    if (device_ >= 0) close(std::exchange(device_, -1));
  }

 private:
  // 0 or an errno.
  int call(unsigned long request, void* argument) { return ioctl(device_, request, argument) < 0 ? errno : 0; }
  void unmap(uint64_t offset, uint64_t bytes);
  static void close_backed(void* place, uint64_t bytes);

  const uint32_t* watch_page();

  int device_ = -1;
  std::atomic<const uint32_t*> watch_page_{nullptr};
  GuestSpace* const space_;
  const uint32_t part_;
  std::atomic<uint64_t> last_seen_{0};  // the process's event count
  std::atomic<int64_t> last_ping_{0};   // seconds
};

bool DeviceTransport::open(const std::string& path, TransportFailure* failure) {
  failure->error = CUDA_ERROR_NO_DEVICE;
  device_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (device_ < 0) {
    const char* advice =
        errno == EACCES ? "this user may not open it: see the udev rule of the guest package" : "see the kernel log";
    failure->message = path + ": " + std::strerror(errno) + "; " + advice;
    return false;
  }
  vgpu_ioc_hello hello{};
  hello.schema = wire::kSchema;
  hello.schema.part = part_to_ask(space_->window, part_);
  const int error = call(VGPU_IOC_HELLO, &hello);
  host_ = hello.host_schema;
  if (error == EPROTO) {
    release_mismatch(host_, failure);
  } else if (error) {
    failure->message = std::string("the host refused this process: ") + std::strerror(error) + "; see the kernel log";
  } else {
    return agree(&space_->window, hello.window_base, part_, &host_, failure);
  }
  return false;
}

int DeviceTransport::add_ring(vgpu_ring_header** ring) {
  vgpu_ioc_ring request{};
  if (const int error = call(VGPU_IOC_ADD_RING, &request)) return error;
  void* const memory = mmap(nullptr, VGPU_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, device_,
                            static_cast<off_t>(request.id) * VGPU_RING_BYTES);
  if (memory == MAP_FAILED) {
    const int error = errno;
    call(VGPU_IOC_DROP_RING, &request);
    return error;
  }
  madvise(memory, VGPU_RING_BYTES, MADV_DONTFORK);
  *ring = static_cast<vgpu_ring_header*>(memory);
  (*ring)->magic = VGPU_RING_MAGIC;
  return 0;
}

int DeviceTransport::allocate(uint64_t bytes, uint32_t flags, SharedBlock* block) {
  const uint64_t offset = space_->window.take(bytes, bytes >= kHugePage ? kHugePage : kPage);
  if (offset == Window::kNone) return ENOMEM;
  void* const place = reinterpret_cast<void*>(space_->window.base() + offset);
  if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != place) {
    const int error = errno;
    space_->window.give_back(offset, bytes);
    return error;
  }
  madvise(place, bytes, MADV_HUGEPAGE);  // fewer, longer runs to hand over; not essential
  madvise(place, bytes, MADV_DONTFORK);  // copy-on-write would take the pages away from the host
  if (const int error = pin(place, bytes, flags, block)) {
    unmap(offset, bytes);
    return error;
  }
  return 0;
}

void DeviceTransport::unmap(uint64_t offset, uint64_t bytes) {
  Window::close(space_->window.base() + offset, bytes);
  space_->window.give_back(offset, bytes);
}

int DeviceTransport::release(const SharedBlock& block) {
  const int error = unpin(block);
  if (error == 0 || error == EPIPE)
    unmap(reinterpret_cast<uint64_t>(block.address) - space_->window.base(), block.bytes);
  return error;
}

int DeviceTransport::pin(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block) {
  vgpu_ioc_region region{};
  region.va = reinterpret_cast<uint64_t>(address);
  region.bytes = bytes;
  region.flags = flags;
  if (const int error = call(VGPU_IOC_PIN, &region)) return error;
  *block = {address, bytes, region.id, flags};
  return 0;
}

int DeviceTransport::unpin(const SharedBlock& block) {
  vgpu_ioc_region region{};
  region.va = reinterpret_cast<uint64_t>(block.address);
  region.bytes = block.bytes;
  region.id = block.region;
  return call(VGPU_IOC_UNPIN, &region);
}

// Pages of a memory file, pinned where they are mapped: what takes this mapping of them away leaves them to the host.
int DeviceTransport::back(uint64_t address, uint64_t bytes, SharedBlock* block) {
  void* const place = reinterpret_cast<void*>(address);
  const int file = memfd_create("bandsaw-managed", MFD_CLOEXEC);
  if (file < 0) return errno;
  int error = ftruncate(file, static_cast<off_t>(bytes)) ? errno : 0;
  if (!error && mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != place) error = errno;
  close(file);  // the mapping keeps it
  if (error) return error;
  madvise(place, bytes, MADV_DONTFORK);
  if (bytes >= kHugePage && madvise(place, bytes, MADV_POPULATE_WRITE) == 0) {
    madvise(place, bytes, MADV_COLLAPSE);  // fewer, longer runs to hand over; not essential
  }
  error = pin(place, bytes, 0, block);
  if (error) close_backed(place, bytes);
  return error;
}

int DeviceTransport::unback(const SharedBlock& block) {
  const int error = unpin(block);
  if (error == 0 || error == EPIPE) close_backed(block.address, block.bytes);
  return error;
}

void DeviceTransport::close_backed(void* place, uint64_t bytes) {
  Window::close(reinterpret_cast<uint64_t>(place), bytes);
}

// Maps it at first use. nullptr: this module has no watch page.
const uint32_t* DeviceTransport::watch_page() {
  const uint32_t* page = watch_page_.load(std::memory_order_acquire);
  if (page) return page;
  void* const mapped = mmap(nullptr, VGPU_WATCH_BYTES, PROT_READ, MAP_SHARED, device_, VGPU_WATCH_OFFSET);
  if (mapped == MAP_FAILED) return nullptr;
  if (watch_page_.compare_exchange_strong(page, static_cast<const uint32_t*>(mapped))) return watch_page_.load();
  munmap(mapped, VGPU_WATCH_BYTES);
  return page;
}

int DeviceTransport::pin_watched(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block,
                                 const uint32_t** word) {
  const uint32_t* const page = watch_page();
  if (!page) return ENOTSUP;
  vgpu_ioc_watched watched{};
  watched.region.va = reinterpret_cast<uint64_t>(address);
  watched.region.bytes = bytes;
  watched.region.flags = flags;
  const int error = call(VGPU_IOC_PIN_WATCHED, &watched);
  if (error) return error == ENOTTY ? ENOTSUP : error;
  *block = {address, bytes, watched.region.id, watched.region.flags};
  *word = page + watched.slot;
  return 0;
}

int DeviceTransport::wait(vgpu_ring_header*, uint64_t* seen, uint32_t timeout_ms) {
  vgpu_ioc_wait request{};
  request.seen = *seen;
  request.timeout_ms = timeout_ms;
  const int error = call(VGPU_IOC_WAIT, &request);
  if (error) return error;
  *seen = request.seen;
  last_seen_.store(request.seen, std::memory_order_release);
  return 0;
}

bool DeviceTransport::alive() {
  // The module reports a dead runner by itself. Only a dead session has to be asked for, and once a second is enough.
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  int64_t before = last_ping_.load(std::memory_order_relaxed);
  if (now.tv_sec == before || !last_ping_.compare_exchange_strong(before, now.tv_sec)) return true;
  return call(VGPU_IOC_PING, nullptr) != EPIPE;
}

}  // namespace

std::unique_ptr<Transport> open_device(const std::string& path, uint32_t part, GuestSpace* space,
                                       TransportFailure* failure) {
  auto transport = std::make_unique<DeviceTransport>(space, part);
  if (!transport->open(path, failure)) return nullptr;
  return transport;
}

}  // namespace bandsaw::libcuda
