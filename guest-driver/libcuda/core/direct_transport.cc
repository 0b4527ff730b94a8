// Direct mode: a container or process on the host itself. Control requests go over the session's Unix socket; command
// rings and shared memory are parts of an arena, a memfd that the session made (vgpu_control.h).
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
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
  // Maps an unused part of the arena. Returns its offset, or Window::kNone.
  uint64_t map_range(uint64_t bytes);
  void close_backed(const SharedBlock& block);
  void unmap_range(uint64_t offset, uint64_t bytes);

  GuestSpace* const space_;
  DirectLink link_;
  std::atomic<uint32_t> next_ring_{0}, next_region_{1};
  std::mutex backed_mutex_;
  std::map<uint64_t, uint64_t> backed_;  // guarded by backed_mutex_: address of back() -> offset in the arena
};

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
  Window::close(space_->window.base() + offset, bytes);
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
  Window::close(reinterpret_cast<uint64_t>(block.address), block.bytes);
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
  link_.look_at_nice();
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
