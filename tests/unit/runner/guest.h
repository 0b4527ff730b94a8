// A guest process in miniature: its RAM is a memfd, its command rings are real ones, its runner is a Process and a
// RecordLoop in this test, with a FakeDevice behind them.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "backend/runner/process.h"
#include "backend/runner/wire/record_loop.h"
#include "guest-driver/uapi/wire.h"
#include "tests/unit/runner/fake_device.h"

namespace bandsaw::runner {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kRamBytes = 16 << 20;
inline constexpr uint32_t kSettleRing = 7;  // no test's own
// Where the test's window lies. ThreadSanitizer leaves little of the address space.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr uint64_t kWindowBase = 0x7e8000000000;
inline constexpr uint64_t kWindowBytes = VGPU_WINDOW_DEVICE_OFFSET + VGPU_WINDOW_PART_BYTES;
#define BANDSAW_WINDOW_CHOSEN
#endif
#endif
#ifndef BANDSAW_WINDOW_CHOSEN
inline constexpr uint64_t kWindowBase = VGPU_WINDOW_BASE_0;
inline constexpr uint64_t kWindowBytes = VGPU_WINDOW_BYTES;
#endif

// Guest RAM as both sides map it. CommandRing `id` lies at id * VGPU_RING_BYTES, regions wherever the test wants.
class Ram {
 public:
  Ram() : fd_(memfd_create("ram", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_.get(), kRamBytes), 0);
    data_ = static_cast<std::byte*>(mmap(nullptr, kRamBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
  }
  ~Ram() { munmap(data_, kRamBytes); }
  std::byte* data() { return data_; }
  UniqueFd fd() const { return UniqueFd(dup(fd_.get())); }

 private:
  UniqueFd fd_;
  std::byte* data_;
};

template <typename Reply>
struct Answered {
  int result = -1;
  Reply reply{};
  std::string tail;
};
struct NoReply {};

// The guest's end of a command ring.
class TestRing {
 public:
  TestRing(std::byte* memory, std::atomic<uint64_t>* last_seq, int kick)
      : header(reinterpret_cast<vgpu_ring_header*>(memory)), memory_(memory), last_seq_(last_seq), kick_(kick) {}

  // Bytes into the record area as they are; the caller frames them.
  void write_raw(const void* data, size_t bytes) {
    std::memcpy(memory_ + VGPU_RING_RECORDS_OFFSET + tail % VGPU_RING_RECORDS_BYTES, data, bytes);
    tail += bytes;
  }
  void publish() { publish_tail(tail); }
  void publish_tail(uint64_t value) {
    std::atomic_ref<__u64>(header->tail).store(value, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (std::atomic_ref<__u32>(header->host_sleeping).load() == 0) return;
    const uint64_t one = 1;
    EXPECT_EQ(write(kick_, &one, sizeof(one)), 8);
  }

  static std::vector<std::byte> record(wire::Opcode opcode, uint64_t seq, uint64_t context, const void* args,
                                       size_t args_bytes, std::string_view data = {}) {
    const size_t bytes = (sizeof(vgpu_record) + args_bytes + data.size() + 15) / 16 * 16;
    std::vector<std::byte> out(bytes);
    const vgpu_record header{static_cast<uint32_t>(bytes), static_cast<uint32_t>(opcode), seq, context, 0};
    std::memcpy(out.data(), &header, sizeof(header));
    if (args_bytes) std::memcpy(out.data() + sizeof(header), args, args_bytes);
    if (!data.empty()) std::memcpy(out.data() + sizeof(header) + args_bytes, data.data(), data.size());
    return out;
  }

  // Publishes a record as a well-behaved guest does; returns its sequence number.
  uint64_t send(wire::Opcode opcode, const void* args, size_t args_bytes, std::string_view data = {}) {
    return send_as(++*last_seq_, opcode, args, args_bytes, data);
  }
  uint64_t send_as(uint64_t seq, wire::Opcode opcode, const void* args, size_t args_bytes, std::string_view data = {}) {
    const auto bytes = record(opcode, seq, context, args, args_bytes, data);
    const size_t left = VGPU_RING_RECORDS_BYTES - tail % VGPU_RING_RECORDS_BYTES;
    const size_t pad = bytes.size() > left ? left : 0;
    wait([&] { return tail + pad + bytes.size() - load(header->head) <= VGPU_RING_RECORDS_BYTES; });
    if (pad) {
      const uint32_t padding[4] = {static_cast<uint32_t>(pad), VGPU_OPCODE_PAD, 0, 0};
      std::memcpy(memory_ + VGPU_RING_RECORDS_OFFSET + tail % VGPU_RING_RECORDS_BYTES, padding, sizeof(padding));
      tail += pad;
    }
    write_raw(bytes.data(), bytes.size());
    publish();
    return seq;
  }
  template <typename Args>
  uint64_t send(wire::Opcode opcode, const Args& args, std::string_view data = {}) {
    return send(opcode, &args, sizeof(args), data);
  }

  template <typename Reply = NoReply>
  Answered<Reply> answer(uint64_t seq) {
    Answered<Reply> out;
    if (!wait([&] { return load(header->reply_seq) == seq; })) return out;
    out.result = header->reply_result;
    const char* body = reinterpret_cast<const char*>(memory_ + VGPU_RING_REPLY_OFFSET);
    const size_t fixed = std::is_same_v<Reply, NoReply> ? 0 : sizeof(Reply);
    if (fixed && header->reply_bytes >= fixed) std::memcpy(&out.reply, body, fixed);
    if (header->reply_bytes > fixed) out.tail.assign(body + fixed, header->reply_bytes - fixed);
    return out;
  }
  template <typename Reply = NoReply>
  Answered<Reply> call(wire::Opcode opcode) {
    return answer<Reply>(send_as(++*last_seq_, opcode, nullptr, 0));
  }
  template <typename Reply = NoReply, typename Args>
  Answered<Reply> call(wire::Opcode opcode, const Args& args, std::string_view data = {}) {
    return answer<Reply>(send(opcode, args, data));
  }
  uint64_t done_word(int slot) { return load(header->done[slot]); }

  template <typename T>
  static T load(T& word) {
    return std::atomic_ref<T>(word).load(std::memory_order_acquire);
  }
  // False: it did not come true in time.
  static bool wait(const std::function<bool()>& what) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!what()) {
      if (std::chrono::steady_clock::now() > until) {
        ADD_FAILURE() << "waited in vain";
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }

  vgpu_ring_header* const header;
  uint64_t context = 0;
  uint64_t tail = 0;

 private:
  std::byte* const memory_;
  std::atomic<uint64_t>* const last_seq_;
  const int kick_;
};

class Guest : public testing::Test {
 protected:
  using MakeFake = std::function<std::unique_ptr<FakeDevice>(uint64_t base, DeviceHost* host)>;

  explicit Guest(const MakeFake& make = std::make_unique<FakeDevice, uint64_t, DeviceHost*>,
                 const SlicingSettings& slicing = {}, const Clock* clock = &Clock::system()) {
    window_.emplace(std::move(Reservation::make(kWindowBytes, {kWindowBase}).value()));
    const auto make_device = [&](DeviceHost* host) -> Result<std::unique_ptr<Device>> {
      auto device = make(kWindowBase + VGPU_WINDOW_DEVICE_OFFSET, host);
      device_ = device.get();
      return std::unique_ptr<Device>(std::move(device));
    };
    process_ = std::move(Process::make(&*window_, make_device, slicing, clock).value());
    process_->set_waker(make_futex_waker());
    EXPECT_TRUE(process_->memory().add_ram(0, ram_.fd(), kRamBytes, 0).ok());
    kick_ = eventfd(0, EFD_CLOEXEC);
    record_loop_ = std::make_unique<RecordLoop>(process_.get(), UniqueFd(kick_));
    record_loop_->start();
  }
  ~Guest() override {
    if (process_) device_->finish();  // the device goes with it
    record_loop_ = nullptr;
    process_ = nullptr;
  }

  TestRing add_ring(uint32_t id) {
    const RunnerSegment segment{0, 0, uint64_t{id} * VGPU_RING_BYTES, VGPU_RING_BYTES};
    auto ring = process_->add_ring(id, 0x10000000 + segment.offset, 0, std::span(&segment, 1));
    EXPECT_TRUE(ring.ok()) << ring.status().message();
    record_loop_->add_ring(ring.value());
    return TestRing(ram_.data() + segment.offset, &last_seq_, kick_);
  }
  // Returns when the record loop has met all that was sent and dropped so far, done or waiting: it takes up a new ring
  // after it, and answers there.
  void settle() { (void)add_ring(kSettleRing).call<wire::MemoryInfoReply>(wire::Opcode::kMemoryInfo); }
  // A context of the process, current in the ring.
  uint64_t make_context(TestRing& ring) {
    const auto made = ring.call<wire::ContextCreateReply>(wire::Opcode::kContextCreate, wire::ContextCreateArgs{0, 1});
    EXPECT_EQ(made.result, CUDA_SUCCESS);
    return ring.context = made.reply.context;
  }
  // A region over `ram_offset` of RAM.
  Status add_region(uint32_t id, uint64_t va, uint64_t ram_offset, uint64_t bytes, uint32_t flags = 0) {
    const RunnerSegment segment{0, 0, ram_offset, bytes};
    return process_->memory().add_region(id, va, flags, std::span(&segment, 1));
  }
  uint64_t device_base() const { return kWindowBase + VGPU_WINDOW_DEVICE_OFFSET; }

  std::optional<Reservation> window_;
  Ram ram_;
  FakeDevice* device_ = nullptr;
  std::unique_ptr<Process> process_;
  int kick_ = -1;
  std::unique_ptr<RecordLoop> record_loop_;
  std::atomic<uint64_t> last_seq_{0};
};

inline vgpu_copy linear_copy(uint64_t destination, vgpu_memory_kind destination_kind, uint64_t source,
                             vgpu_memory_kind source_kind, uint64_t bytes) {
  vgpu_copy copy{};
  copy.destination.address = destination;
  copy.destination.kind = destination_kind;
  copy.source.address = source;
  copy.source.kind = source_kind;
  copy.width_bytes = bytes;
  copy.height = copy.depth = 1;
  return copy;
}

// A node of the graph that copies.
inline uint64_t add_copy_node(TestRing& ring, uint64_t graph, const vgpu_copy& copy) {
  const vgpu_copy_node node{copy, 0};
  wire::GraphAddNodeArgs args{};
  args.graph = graph;
  args.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  args.data_bytes = sizeof(node);
  const auto added = ring.call<wire::GraphAddNodeReply>(
      wire::Opcode::kGraphAddNode, args, std::string_view(reinterpret_cast<const char*>(&node), sizeof(node)));
  EXPECT_EQ(added.result, CUDA_SUCCESS);
  return added.reply.node;
}

}  // namespace bandsaw::runner
