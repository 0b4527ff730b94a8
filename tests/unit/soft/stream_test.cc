// Order of work: streams, events, callbacks, values.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

std::atomic<uint32_t> g_clock{0};
std::atomic<bool> g_open{false};

// Waits for the gate, then writes the next number to the word it was given.
void stamp_gated(WarpState* warp) {
  while (!g_open) {
    if (__atomic_load_n(warp->cancelled, __ATOMIC_RELAXED)) bandsaw_cancelled(warp);
    bandsaw_yield(warp);
  }
  uint64_t address;
  std::memcpy(&address, warp->parameters, 8);
  std::atomic_ref(*reinterpret_cast<uint32_t*>(address)).store(++g_clock);
}

void stamp(WarpState* warp) {
  uint64_t address;
  std::memcpy(&address, warp->parameters, 8);
  std::atomic_ref(*reinterpret_cast<uint32_t*>(address)).store(++g_clock);
}

class SoftStreamTest : public SoftDeviceTest {
 protected:
  SoftStreamTest() {
    g_open = false;
    gated = load(fake_kernel("stamp_gated", stamp_gated, 8));
    plain = load(fake_kernel("stamp", stamp, 8));
    words = alloc(4096);
  }
  ~SoftStreamTest() override { g_open = true; }
  uint64_t word(int i) const { return words + 4 * static_cast<uint64_t>(i); }
  uint32_t value(int i) const { return *reinterpret_cast<volatile uint32_t*>(word(i)); }
  KernelRef gated, plain;
  uint64_t words;
};

TEST_F(SoftStreamTest, StreamsRunBesideEachOther) {
  const StreamRef a = stream(), b = stream();
  ASSERT_EQ(launch(a, gated, 1, 1, word(0)), CUDA_SUCCESS);
  ASSERT_EQ(launch(b, plain, 1, 1, word(1)), CUDA_SUCCESS);
  ASSERT_EQ(sync(b), CUDA_SUCCESS);
  EXPECT_EQ(device->stream_query(a), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(device->stream_query(b), CUDA_SUCCESS);
  g_open = true;
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_LT(value(1), value(0));
}

TEST_F(SoftStreamTest, LegacyStreamOrdersBlockingStreams) {
  const StreamRef a = stream(CU_STREAM_DEFAULT), b = stream(CU_STREAM_DEFAULT), free_stream = stream();
  ASSERT_EQ(launch(a, gated, 1, 1, word(0)), CUDA_SUCCESS);
  ASSERT_EQ(launch(legacy, plain, 1, 1, word(1)), CUDA_SUCCESS);
  ASSERT_EQ(launch(b, plain, 1, 1, word(2)), CUDA_SUCCESS);
  ASSERT_EQ(launch(free_stream, plain, 1, 1, word(3)), CUDA_SUCCESS);
  ASSERT_EQ(sync(free_stream), CUDA_SUCCESS);
  EXPECT_EQ(device->stream_query(b), CUDA_ERROR_NOT_READY);
  g_open = true;
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_LT(value(3), value(0));
  EXPECT_LT(value(0), value(1));
  EXPECT_LT(value(1), value(2));
}

TEST_F(SoftStreamTest, EventsJoinStreams) {
  const StreamRef a = stream(), b = stream();
  const EventRef start = event(), ready = event(), untimed = event(CU_EVENT_DISABLE_TIMING);
  float ms = 0;
  EXPECT_EQ(device->event_query(start), CUDA_SUCCESS);
  EXPECT_EQ(device->event_elapsed(start, ready, &ms), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(device->event_record(start, a, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(a, gated, 1, 1, word(0)), CUDA_SUCCESS);
  ASSERT_EQ(device->event_record(ready, a, 0), CUDA_SUCCESS);
  ASSERT_EQ(device->event_record(untimed, a, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->event_query(ready), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(device->event_elapsed(start, ready, &ms), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(device->stream_wait_event(b, ready, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(b, plain, 1, 1, word(1)), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(device->stream_query(b), CUDA_ERROR_NOT_READY);
  g_open = true;
  EXPECT_EQ(wait_for([&](Done done) { device->event_synchronize(ready, std::move(done)); }), CUDA_SUCCESS);
  ASSERT_EQ(sync(b), CUDA_SUCCESS);
  EXPECT_LT(value(0), value(1));
  ASSERT_EQ(device->event_elapsed(start, ready, &ms), CUDA_SUCCESS);
  EXPECT_GE(ms, 1.9f);
  EXPECT_EQ(device->event_elapsed(start, untimed, &ms), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(SoftStreamTest, CallbacksHoldTheStream) {
  const StreamRef a = stream();
  Done release;
  std::promise<void> called;
  host.on_callback = [&](const HostCallback&, Done done) {
    release = std::move(done);
    called.set_value();
  };
  ASSERT_EQ(launch(a, plain, 1, 1, word(0)), CUDA_SUCCESS);
  ASSERT_EQ(device->callback(a, {VGPU_CALLBACK_HOST_FUNCTION, 0x10, 0x20, 0}), CUDA_SUCCESS);
  ASSERT_EQ(launch(a, plain, 1, 1, word(1)), CUDA_SUCCESS);
  called.get_future().wait();
  EXPECT_NE(value(0), 0u);
  EXPECT_EQ(device->stream_query(a), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(value(1), 0u);
  release(CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_NE(value(1), 0u);
  EXPECT_EQ(host.called().at(0).function, 0x10u);
}

TEST_F(SoftStreamTest, LongChainsOfCallbacks) {
  const StreamRef a = stream();
  for (int i = 0; i < 20000; ++i) {
    ASSERT_EQ(device->callback(a, {VGPU_CALLBACK_HOST_FUNCTION, 1, 1, 0}), CUDA_SUCCESS);
  }
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(host.called().size(), 20000u);
}

TEST_F(SoftStreamTest, Values) {
  const StreamRef a = stream(), b = stream();
  ASSERT_EQ(device->wait_value(a, word(0), 3, 4, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  ASSERT_EQ(device->write_value(a, word(2), 0x1122334455667788, 8, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->stream_query(a), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(device->write_value(b, word(0), 2, 4, 0), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(device->stream_query(a), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(device->write_value(b, word(0), 4, 4, 0), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(word(2)), 0x1122334455667788u);
  EXPECT_EQ(device->write_value(a, word(0) + 1, 0, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->wait_value(a, word(0), 0, 4, 9), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(device->wait_value(a, word(0), 99, 4, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  // The context goes while the stream waits: nothing hangs.
}

TEST_F(SoftStreamTest, DestroyedStreamsEndTheirWork) {
  StreamRef a = stream(CU_STREAM_DEFAULT);
  ASSERT_EQ(launch(a, gated, 1, 1, word(0)), CUDA_SUCCESS);
  ASSERT_EQ(device->stream_destroy(a), CUDA_SUCCESS);
  a.reset();
  ASSERT_EQ(launch(legacy, plain, 1, 1, word(1)), CUDA_SUCCESS);
  EXPECT_EQ(device->stream_query(legacy), CUDA_ERROR_NOT_READY);
  g_open = true;
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_LT(value(0), value(1));
}

TEST_F(SoftStreamTest, DoneCallsComeInOrder) {
  const StreamRef a = stream();
  std::mutex mutex;
  std::vector<int> order;
  ASSERT_EQ(launch(a, gated, 1, 1, word(0)), CUDA_SUCCESS);
  std::vector<char> bytes(1 << 20);
  for (int i = 0; i < 50; ++i) {
    Copy copy;
    copy.destination.address = words;
    copy.source = {reinterpret_cast<uint64_t>(bytes.data()), 0, 0, true};
    copy.width_bytes = 64;
    ASSERT_EQ(device->copy(a, copy,
                           [&, i](CUresult) {
                             std::lock_guard lock(mutex);
                             order.push_back(i);
                           }),
              CUDA_SUCCESS);
  }
  g_open = true;
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  ASSERT_EQ(order.size(), 50u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(SoftStreamTest, ManyStreamsManyThreads) {
  g_open = true;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const StreamRef mine = stream();
      for (int i = 0; i < 200; ++i) {
        if (launch(mine, plain, 3, 64, word(t)) || (i % 20 == 0 && sync(mine))) ++failures;
      }
      if (sync(mine)) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace bandsaw::soft
