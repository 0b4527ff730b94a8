#include "tests/unit/soft/host_fixture.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "guest-driver/uapi/vgpu_control.h"

#if defined(__SANITIZE_THREAD__)
#include <sys/personality.h>
#include <unistd.h>

// ThreadSanitizer shadows only one of the windows, and with address randomisation libraries may lie in it.
__attribute__((constructor)) static void without_randomisation(int, char** argv, char** environment) {
  const int now = ::personality(0xffffffff);
  if (now < 0 || (now & ADDR_NO_RANDOMIZE)) return;
  if (::personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE) >= 0) {
    ::execve("/proc/self/exe", argv, environment);
  }
}
#endif

namespace bandsaw::soft {

void FakeHost::run_callback(const HostCallback& callback, CUresult, Done done) {
  {
    std::lock_guard lock(mutex_);
    callbacks_.push_back(callback);
  }
  if (on_callback) {
    on_callback(callback, std::move(done));
  } else {
    done(CUDA_SUCCESS);
  }
}

void FakeHost::poisoned(CUresult) { ++poisonings; }

void FakeHost::print(std::string_view text) {
  std::lock_guard lock(mutex_);
  text_ += text;
}

bool FakeHost::charge_memory(int64_t bytes) {
  if (bytes > 0 && charged + bytes > share) return false;
  charged += bytes;
  return true;
}

void FakeHost::charge_time(int engine, uint64_t nanoseconds, uint64_t bytes) {
  busy[engine] += nanoseconds;
  moved[engine] += bytes;
}

void* FakeHost::visible_host(uint64_t guest_address, uint64_t bytes) {
  if (guest_address < visible_at || guest_address + bytes > visible_at + visible_bytes) return nullptr;
  return static_cast<char*>(visible) + (guest_address - visible_at);
}

std::string FakeHost::printed() {
  std::lock_guard lock(mutex_);
  return text_;
}

std::vector<HostCallback> FakeHost::called() {
  std::lock_guard lock(mutex_);
  return callbacks_;
}

uint64_t test_window() {
  static const uint64_t window = [] {
#if defined(__SANITIZE_THREAD__)
    const uint64_t bases[] = {0x7e8000000000};  // ThreadSanitizer can shadow this alone, and one part
    constexpr uint64_t kBytes = VGPU_WINDOW_DEVICE_OFFSET + VGPU_WINDOW_PART_BYTES;
#else
    const uint64_t bases[] = {VGPU_WINDOW_BASE_0, VGPU_WINDOW_BASE_1, VGPU_WINDOW_BASE_2};
    constexpr uint64_t kBytes = VGPU_WINDOW_BYTES;
#endif
    for (const uint64_t base : bases) {
      if (::mmap(reinterpret_cast<void*>(base), kBytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED) {
        return base;
      }
    }
    std::abort();
  }();
  return window;
}

HostFixture::HostFixture(DeviceConfig config) {
  config.window_base = test_window();
  config.memory_share = static_cast<uint64_t>(host.share);
  config.threads = 2;
  device = make_soft_device(config, &host);
  EXPECT_EQ(device->context_create(0, &context), CUDA_SUCCESS);
  legacy = device->stream_legacy(context);
  context_bytes = host.charged.exchange(0);
}

HostFixture::~HostFixture() {
  legacy.reset();
  context.reset();
  device.reset();
  EXPECT_EQ(host.charged, -context_bytes) << "memory left behind";
}

uint64_t HostFixture::alloc(uint64_t bytes) {
  uint64_t address = 0;
  EXPECT_EQ(device->memory_alloc(context, bytes, &address), CUDA_SUCCESS);
  return address;
}

CUresult HostFixture::free(uint64_t address) {
  return wait_for([&](Done done) { device->memory_free(address, std::move(done)); });
}

StreamRef HostFixture::stream(uint32_t flags, int priority) {
  StreamRef made;
  EXPECT_EQ(device->stream_create(context, flags, priority, &made), CUDA_SUCCESS);
  return made;
}

EventRef HostFixture::event(uint32_t flags) {
  EventRef made;
  EXPECT_EQ(device->event_create(context, flags, &made), CUDA_SUCCESS);
  return made;
}

CUresult HostFixture::sync(const StreamRef& stream) {
  return wait_for([&](Done done) { device->stream_synchronize(stream, std::move(done)); });
}

CUresult HostFixture::sync() {
  return wait_for([&](Done done) { device->context_synchronize(context, std::move(done)); });
}

CUresult HostFixture::copy_in(const StreamRef& stream, uint64_t to, const void* from, uint64_t bytes) {
  Copy copy;
  copy.destination.address = to;
  copy.source.address = reinterpret_cast<uint64_t>(from);
  copy.source.host = true;
  copy.width_bytes = bytes;
  return device->copy(stream, copy, nullptr);
}

CUresult HostFixture::copy_out(const StreamRef& stream, void* to, uint64_t from, uint64_t bytes) {
  Copy copy;
  copy.destination.address = reinterpret_cast<uint64_t>(to);
  copy.destination.host = true;
  copy.source.address = from;
  copy.width_bytes = bytes;
  return device->copy(stream, copy, nullptr);
}

void HostFixture::pack(std::vector<std::byte>* into, const void* argument, size_t bytes) {
  into->resize((into->size() + bytes - 1) / bytes * bytes);
  const auto* from = static_cast<const std::byte*>(argument);
  into->insert(into->end(), from, from + bytes);
}

CUresult wait_for(const std::function<void(Done)>& begin) {
  auto promise = std::make_shared<std::promise<CUresult>>();
  auto future = promise->get_future();
  begin([promise](CUresult result) { promise->set_value(result); });
  if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
    ADD_FAILURE() << "no answer in a minute";
    return CUDA_ERROR_TIMEOUT;
  }
  return future.get();
}

}  // namespace bandsaw::soft
