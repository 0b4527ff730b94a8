// A guest whose launches are cut, and a device that notes what it is given.
#pragma once

#include <gtest/gtest.h>

#include <deque>

#include "memory/base/futex.h"
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {

using wire::Opcode;

inline constexpr uint32_t kGateSlot = 7;
inline constexpr std::string_view kFillPtx = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 fill_0, .param .u32 fill_1)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [fill_0];
  ld.param.u32 %r1, [fill_1];
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
)";
inline constexpr uint64_t kAddress = 0x1122334455667788;
inline constexpr uint32_t kValue = 42;

// Notes what it is given, in order, and ends grid slices when the test says so.
class SlicedDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;

  // A program's event, or one of the slicer's own, which is not noted.
  struct NamedEvent final : Event {
    bool own = false;
  };
  struct Side final : Stream {
    int number = 0;
  };
  CUresult event_create(const ContextRef&, uint32_t flags, EventRef* event) override {
    auto made = std::make_shared<NamedEvent>();
    made->own = flags & CU_EVENT_DISABLE_TIMING;
    *event = std::move(made);
    return CUDA_SUCCESS;
  }
  CUresult stream_beside(const StreamRef&, StreamRef* made) override {
    if (!has_sides) return CUDA_ERROR_NOT_SUPPORTED;
    auto side = std::make_shared<Side>();
    side->number = ++sides;
    *made = std::move(side);
    return CUDA_SUCCESS;
  }
  CUresult event_query(const EventRef&) override {
    ++queries;
    return begun ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  CUresult stream_wait_event(const StreamRef& stream, const EventRef& event, uint32_t) override {
    std::lock_guard lock(mutex);
    if (has_sides) note(side_of(stream) == 0 ? "join" : fmt::format("fork {}", side_of(stream)));
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }

  CUresult launch(const StreamRef& stream, const Launch& launch) override {
    std::lock_guard lock(mutex);
    const CUresult result = fail_at == taken++ ? failure : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return result;
    parameters.assign(launch.parameters.begin(), launch.parameters.end());
    if (launch.parameters.size() >= 48) {  // aligned, behind the original's 12 bytes: counter, flag, blocks, grid
      uint64_t counter = 0;
      std::memcpy(&counter, parameters.data() + 16, sizeof counter);
      auto* const claimed = reinterpret_cast<uint32_t*>(counter);
      const std::string at_most = limited      ? fmt::format(" at most {}", limit())
                                  : told_apart ? stamp(launch.grid[0])
                                               : "";
      note(fmt::format("{} persistent{} from {}", launch.grid[0], at_most, *claimed));
      launched_on = stream.get();
      *claimed += claims;
      if (launch.parameters.size() >= 64 && !limited) drop_some();
      return CUDA_SUCCESS;
    }
    const bool cut = launch.parameters.size() >= 36;  // behind the original's 12 bytes: first block, grid
    uint32_t first = 0;
    if (cut) std::memcpy(&first, launch.parameters.data() + 12, sizeof first);
    std::string text = cut ? fmt::format("{}+{}", first, launch.grid[0]) : fmt::format("whole {}", launch.grid[0]);
    if (const int side = side_of(stream)) text += fmt::format(" on {}", side);
    note(std::move(text));
    return FakeDevice::launch(stream, launch);
  }
  CUresult event_record(const EventRef& event, const StreamRef&, uint32_t) override {
    std::lock_guard lock(mutex);
    if (!static_cast<NamedEvent&>(*event).own) note("record");
    return CUDA_SUCCESS;
  }
  CUresult copy(const StreamRef& stream, const Copy& what, Done done) override {
    {
      std::lock_guard lock(mutex);
      if (probes_pass && stream.get() != launched_on) {
        std::memcpy(reinterpret_cast<void*>(what.destination.address),
                    reinterpret_cast<const void*>(what.source.address), what.width_bytes);
        if (what.source.host) note_stops(reinterpret_cast<const uint32_t*>(what.source.address));
        done(CUDA_SUCCESS);
        return CUDA_SUCCESS;
      }
      note("copy");
    }
    return FakeDevice::copy(stream, what, std::move(done));
  }
  CUresult fill(const StreamRef&, const vgpu_fill& what, Done done) override {
    for (uint64_t i = 0; i < what.width; ++i) {
      std::memcpy(reinterpret_cast<void*>(what.address + i * what.element_bytes), &what.value, what.element_bytes);
    }
    if (done) done(CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  CUresult write_value(const StreamRef&, uint64_t address, uint64_t value, uint32_t, uint32_t) override {
    if (!is_memory(address)) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(mutex);
    values.push_back(value);
    ++told;
    return CUDA_SUCCESS;
  }
  void time_slice_end(unsigned engine, TimeSliceDone done) override {
    {
      std::lock_guard lock(mutex);
      if (hold && engine == kCompute) return held.push_back(std::move(done));
    }
    done(1000);
  }
  // A grid slice is over, the oldest one if nothing else is said. Waits until there is one: it ends for the gate after
  // its launch was seen.
  void end_grid_slice(size_t which = 0, uint64_t busy_ns = 1000) {
    TimeSliceDone done;
    TestRing::wait([&] {
      std::lock_guard lock(mutex);
      return held.size() > which;
    });
    {
      std::lock_guard lock(mutex);
      done = std::move(held.at(which));
      held.erase(held.begin() + static_cast<ptrdiff_t>(which));
    }
    done(busy_ns);
  }
  void end_all() {
    std::deque<TimeSliceDone> all;
    {
      std::lock_guard lock(mutex);
      hold = false;
      all.swap(held);
    }
    for (TimeSliceDone& done : all) done(1000);
  }
  std::vector<uint64_t> limits() {
    std::lock_guard lock(mutex);
    return values;
  }
  std::vector<std::string> seen() {
    std::lock_guard lock(mutex);
    return notes;
  }

  std::mutex mutex;
  bool hold = false;
  bool probes_pass = false;  // those at counters of persistent blocks, though work is held; they are not noted
  const Stream* launched_on = nullptr;
  int fail_at = -1, taken = 0;
  CUresult failure = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  std::vector<std::byte> parameters;
  uint32_t claims = 5;                       // blocks that a launch of persistent ones does before it stops
  bool limited = false;                      // they are limited on each SM
  bool told_apart = false;                   // each has a place; two of them lie on an SM
  std::vector<std::vector<uint32_t>> stops;  // of the first places, as they were written
  uint32_t drops = 0;                        // of these, that the next launch drops
  std::atomic<int> told{0};
  bool has_sides = false;         // streams beside the program's
  std::atomic<bool> begun{true};  // what the program's stream was given before
  std::atomic<int> queries{0};    // whether it has
  int sides = 0;

 private:
  // What the launch's limit stands at: the last of its parameters.
  uint32_t limit() const {
    uint64_t at = 0;
    std::memcpy(&at, parameters.data() + 56, sizeof at);
    return *reinterpret_cast<const uint32_t*>(at);
  }
  // As blocks do when they claim. The even SMs' have just begun.
  std::string stamp(uint32_t blocks) const {
    uint64_t places = 0;
    uint32_t first = 0;
    std::memcpy(&places, parameters.data() + 48, sizeof places);
    std::memcpy(&first, parameters.data() + 56, sizeof first);
    auto* const stamps = reinterpret_cast<ptx::BlockStamp*>(places);
    for (uint64_t i = first; i < first + blocks; ++i) stamps[i] = (i / 2) << 32 | (i / 2 % 2 == 0 ? 1000 : 900);
    return fmt::format(" at {}", first);
  }
  void note_stops(const uint32_t* words) { stops.emplace_back(words, words + 8); }
  static int side_of(const StreamRef& stream) {
    const auto* side = dynamic_cast<const Side*>(stream.get());
    return side ? side->number : 0;
  }
  // As persistent blocks do: those of the list are claimed, one asks in vain, and what is dropped comes behind.
  void drop_some() {
    uint64_t list = 0;
    uint32_t end = 0;
    std::memcpy(&list, parameters.data() + 48, sizeof list);
    std::memcpy(&end, parameters.data() + 56, sizeof end);
    auto* const counts = reinterpret_cast<uint32_t*>(list);
    counts[0] = end + 1;
    counts[1] += std::exchange(drops, 0);
  }
  void note(std::string text) { notes.push_back(std::move(text)); }

  std::deque<TimeSliceDone> held;
  std::vector<std::string> notes;
  std::vector<uint64_t> values;  // that were written beside kernels
};

inline SlicingSettings forced(uint64_t blocks, VariantChoice variant = VariantChoice::kSliced) {
  SlicingSettings settings;
  settings.enabled = settings.any_gpu = true;
  settings.force_blocks = blocks;
  settings.in_flight = 2;
  settings.variant = variant;
  settings.timeout_ns = 3'600'000'000'000;  // nothing has stalled because this machine is slow
  return settings;
}

// Every launch of this guest is cut into grid slices of three blocks. Gates are open unless the test closes them.
class Sliced : public Guest {
 protected:
  explicit Sliced(const SlicingSettings& settings = forced(3), const Clock* clock = &Clock::system())
      : Guest(std::make_unique<SlicedDevice, uint64_t, DeviceHost*>, settings, clock) {
    grant_page_->depth = 8;
    for (Gate& gate : grant_page_->gates[kGateSlot]) gate.open = 1;
    process_->gate().connect(grant_page_.get(), kGateSlot, UniqueFd());
    make_context(ring_);
    function_ = load(kFillPtx);
  }
  ~Sliced() override {
    grant_page_->no_arbiter = 1;
    for (Gate& gate : grant_page_->gates[kGateSlot]) futex_wake(&gate.granted);
    device().end_all();
    record_loop_ = nullptr;  // before the grant page goes
  }

  SlicedDevice& device() { return static_cast<SlicedDevice&>(*device_); }
  Gate& gate() { return grant_page_->gates[kGateSlot][kCompute]; }
  void grant(uint32_t number) {
    gate().granted = number;
    futex_wake(&gate().granted);
  }
  // From now on the arbiter plans, and nobody begins unasked.
  void plan() {
    process_->gate().pause();
    grant_page_->planned = 1;
    gate().open = 0;
  }
  // What the device was told to hold ends, and with it all that the program waits for.
  void let_end() {
    device_->hold_work(false);
    device_->finish();
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  }
  SlicingCounters& counters() { return process_->usage_page().slot().slicing; }

  // The kernel with more in it.
  static std::string with(std::string_view more) {
    std::string ptx(kFillPtx);
    return ptx.insert(ptx.find("st.global"), std::string(more) + "\n  ");
  }
  uint64_t load(std::string_view ptx) {
    const uint64_t at = 0x40000000 + loaded_ * kPage, offset = (4 << 20) + loaded_ * kPage;
    EXPECT_TRUE(add_region(++loaded_, at, offset, kPage).ok());
    std::memcpy(ram_.data() + offset, ptx.data(), ptx.size());
    const auto module = ring_.call<wire::ModuleLoadReply>(Opcode::kModuleLoad, wire::ModuleLoadArgs{at, ptx.size()});
    EXPECT_EQ(module.result, CUDA_SUCCESS);
    const auto function = ring_.call<wire::ModuleFunctionReply>(
        Opcode::kModuleFunction, wire::ModuleFunctionArgs{module.reply.module, 4, 0}, "fill");
    EXPECT_EQ(function.result, CUDA_SUCCESS);
    return function.reply.function;
  }
  uint64_t make_stream() {
    return ring_.call<wire::StreamCreateReply>(Opcode::kStreamCreate, wire::StreamCreateArgs{0, 0}).reply.stream;
  }
  uint64_t make_event() {
    return ring_.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0, 0}).reply.event;
  }
  void launch(uint32_t blocks, uint64_t stream = 0, uint32_t flags = 0) {
    wire::LaunchArgs args{};
    args.launch.function = function_;
    args.launch.stream = stream;
    args.launch.flags = flags;
    args.launch.grid[0] = blocks;
    args.launch.grid[1] = args.launch.grid[2] = 1;
    args.launch.block[0] = 32;
    args.launch.block[1] = args.launch.block[2] = 1;
    args.parameters_bytes = 12;
    std::string parameters(12, '\0');
    std::memcpy(parameters.data(), &kAddress, 8);
    std::memcpy(parameters.data() + 8, &kValue, 4);
    ring_.send(Opcode::kLaunch, args, parameters);
  }
  uint64_t send_synchronize(uint64_t stream = 0) {
    return ring_.send(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{stream});
  }
  int synchronize(uint64_t stream = 0) { return ring_.answer(send_synchronize(stream)).result; }
  void wait_for(size_t things) {
    TestRing::wait([&] { return device().seen().size() >= things; });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // that there are no more
  }
  using Seen = std::vector<std::string>;

  std::unique_ptr<GrantPage> grant_page_ = std::make_unique<GrantPage>();
  TestRing ring_ = add_ring(0);
  uint64_t function_ = 0;
  uint32_t loaded_ = 0;
};

}  // namespace bandsaw::runner
