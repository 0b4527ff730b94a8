// A software device with a host around it, for tests with either compiler.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/device/device.h"

namespace bandsaw::soft {

class FakeHost : public DeviceHost {
 public:
  void run_callback(const HostCallback& callback, CUresult status, Done done) override;
  void poisoned(CUresult error) override;
  void print(std::string_view text) override;
  bool charge_memory(int64_t bytes) override;
  void charge_time(int engine, uint64_t nanoseconds, uint64_t bytes) override;
  void* visible_host(uint64_t guest_address, uint64_t bytes) override;

  std::string printed();
  std::vector<HostCallback> called();

  std::atomic<int64_t> charged{0};
  int64_t share = 1ll << 30;
  std::atomic<int> poisonings{0};
  std::atomic<uint64_t> busy[3]{}, moved[3]{};
  // Host memory that the device sees at another address.
  uint64_t visible_at = 0, visible_bytes = 0;
  void* visible = nullptr;
  // Empty: callbacks end at once. Otherwise it gets each callback's Done.
  std::function<void(const HostCallback&, Done)> on_callback;

 private:
  std::mutex mutex_;
  std::string text_;
  std::vector<HostCallback> callbacks_;
};

// Keeps a window for the life of the test program.
uint64_t test_window();

class HostFixture : public ::testing::Test {
 protected:
  // What `config` says beside window, share and threads.
  explicit HostFixture(DeviceConfig config = {});
  ~HostFixture() override;

  uint64_t alloc(uint64_t bytes);
  CUresult free(uint64_t address);
  StreamRef stream(uint32_t flags = CU_STREAM_NON_BLOCKING, int priority = 0);
  EventRef event(uint32_t flags = 0);
  CUresult sync(const StreamRef& stream);
  CUresult sync();
  template <typename... T>
  CUresult launch(const StreamRef& stream, const KernelRef& kernel, uint32_t blocks, uint32_t threads, T... arguments) {
    std::vector<std::byte> packed;
    (pack(&packed, &arguments, sizeof arguments), ...);
    Launch launch;
    launch.code.kernel = kernel;
    std::fill_n(launch.grid, 3, 1);
    std::fill_n(launch.block, 3, 1);
    launch.grid[0] = blocks;
    launch.block[0] = threads;
    launch.parameters = packed;
    return device->launch(stream, launch);
  }
  CUresult copy_in(const StreamRef& stream, uint64_t to, const void* from, uint64_t bytes);
  CUresult copy_out(const StreamRef& stream, void* to, uint64_t from, uint64_t bytes);

  FakeHost host;
  std::unique_ptr<Device> device;
  ContextRef context;
  int64_t context_bytes = 0;  // what `context` takes of the share; `host.charged` begins at 0 behind it
  StreamRef legacy;

 private:
  static void pack(std::vector<std::byte>* into, const void* argument, size_t bytes);
};

// Calls `begin` with a Done and waits for its result.
CUresult wait_for(const std::function<void(Done)>& begin);

}  // namespace bandsaw::soft
