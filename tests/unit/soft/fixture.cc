#include "tests/unit/soft/fixture.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {

namespace {

std::mutex g_module_mutex;
FakeModule g_module;

class FakeProgram : public Program {
 public:
  explicit FakeProgram(FakeModule module) : module_(std::move(module)) {}
  const std::vector<KernelCode>& kernels() const override { return module_.kernels; }
  const std::vector<Variable>& variables() const override { return module_.variables; }
  struct FakeLoaded : Loaded {
    std::map<std::string, KernelEntry> entries;
    KernelEntry entry(const std::string& kernel) const override {
      const auto found = entries.find(kernel);
      return found == entries.end() ? nullptr : found->second;
    }
    uint64_t function_address(const std::string& name) const override {
      return reinterpret_cast<uint64_t>(entry(name));
    }
  };
  std::unique_ptr<Loaded> load(const std::map<std::string, uint64_t>&, std::string*) override {
    auto loaded = std::make_unique<FakeLoaded>();
    for (const KernelCode& kernel : module_.kernels) loaded->entries[kernel.name] = kernel.entry;
    return loaded;
  }

 private:
  const FakeModule module_;
};

}  // namespace

std::unique_ptr<Program> compile(std::string_view ptx, const CompileOptions&, std::string* log) {
  std::lock_guard lock(g_module_mutex);
  if (ptx.find("broken") != ptx.npos) {
    *log = "line 2: broken";
    return nullptr;
  }
  return std::make_unique<FakeProgram>(g_module);
}

void set_fake_module(FakeModule module) {
  std::lock_guard lock(g_module_mutex);
  g_module = std::move(module);
}

KernelCode fake_kernel(const std::string& name, KernelEntry entry, uint32_t parameter_bytes) {
  KernelCode kernel;
  kernel.name = name;
  kernel.entry = entry;
  kernel.parameter_bytes = parameter_bytes;
  return kernel;
}

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

void FakeHost::account(int engine, uint64_t nanoseconds, uint64_t bytes) {
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
    const uint64_t bases[] = {VGPU_WINDOW_BASE_2};  // the only one that ThreadSanitizer can shadow
#else
    const uint64_t bases[] = {VGPU_WINDOW_BASE_0, VGPU_WINDOW_BASE_1, VGPU_WINDOW_BASE_2};
#endif
    for (const uint64_t base : bases) {
      if (::mmap(reinterpret_cast<void*>(base), VGPU_WINDOW_BYTES, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED) {
        return base;
      }
    }
    std::abort();
  }();
  return window;
}

SoftDeviceTest::SoftDeviceTest() {
  DeviceConfig config;
  config.window_base = test_window();
  config.memory_share = static_cast<uint64_t>(host.share);
  config.threads = 2;
  device = make_soft_device(config, &host);
  EXPECT_EQ(device->context_create(0, &context), CUDA_SUCCESS);
  legacy = device->stream_legacy(context);
}

SoftDeviceTest::~SoftDeviceTest() {
  legacy.reset();
  context.reset();
  device.reset();
  EXPECT_EQ(host.charged, 0) << "memory left behind";
}

LibraryRef SoftDeviceTest::load(FakeModule module) {
  set_fake_module(std::move(module));
  const std::string text = ".version 9.0\n.target sm_90\n.address_size 64\n";
  LibraryRef library;
  std::string log;
  EXPECT_EQ(device->library_load(std::as_bytes(std::span(text)), &library, &log), CUDA_SUCCESS) << log;
  return library;
}

KernelRef SoftDeviceTest::load(const KernelCode& kernel) {
  KernelRef found;
  EXPECT_EQ(device->library_kernel(load(FakeModule{{kernel}, {}}), kernel.name, &found), CUDA_SUCCESS);
  return found;
}

uint64_t SoftDeviceTest::alloc(uint64_t bytes) {
  uint64_t address = 0;
  EXPECT_EQ(device->memory_alloc(context, bytes, &address), CUDA_SUCCESS);
  return address;
}

CUresult SoftDeviceTest::free(uint64_t address) {
  return wait_for([&](Done done) { device->memory_free(address, std::move(done)); });
}

StreamRef SoftDeviceTest::stream(uint32_t flags, int priority) {
  StreamRef made;
  EXPECT_EQ(device->stream_create(context, flags, priority, &made), CUDA_SUCCESS);
  return made;
}

EventRef SoftDeviceTest::event(uint32_t flags) {
  EventRef made;
  EXPECT_EQ(device->event_create(context, flags, &made), CUDA_SUCCESS);
  return made;
}

CUresult SoftDeviceTest::sync(const StreamRef& stream) {
  return wait_for([&](Done done) { device->stream_synchronize(stream, std::move(done)); });
}

CUresult SoftDeviceTest::sync() {
  return wait_for([&](Done done) { device->context_synchronize(context, std::move(done)); });
}

CUresult SoftDeviceTest::copy_in(const StreamRef& stream, uint64_t to, const void* from, uint64_t bytes) {
  Copy copy;
  copy.destination.address = to;
  copy.source.address = reinterpret_cast<uint64_t>(from);
  copy.source.host = true;
  copy.width_bytes = bytes;
  return device->copy(stream, copy, nullptr);
}

CUresult SoftDeviceTest::copy_out(const StreamRef& stream, void* to, uint64_t from, uint64_t bytes) {
  Copy copy;
  copy.destination.address = reinterpret_cast<uint64_t>(to);
  copy.destination.host = true;
  copy.source.address = from;
  copy.width_bytes = bytes;
  return device->copy(stream, copy, nullptr);
}

void SoftDeviceTest::pack(std::vector<std::byte>* into, const void* argument, size_t bytes) {
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
