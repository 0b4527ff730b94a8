// A guest whose long copies and graphs pass its gates in pieces, and a device that notes what it is given.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>

#include "backend/runner/execution/copy_pieces.h"
#include "memory/base/futex.h"
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {

using wire::Opcode;

inline constexpr uint32_t kPiecesSlot = 3;
inline constexpr uint64_t kPiecesQuantumNs = 100'000;
// Of a copy nothing is known of: 8 GB/s for half a quantum, and for a whole one.
inline constexpr uint64_t kClosedPiece = 6 * PieceSize::kStep, kOpenPiece = 12 * PieceSize::kStep;
inline constexpr uint64_t kBytes = 1 << 20;
inline constexpr uint64_t kPiecesHost = 0x40000000, kPiecesHostOffset = 12 << 20;

// Notes the bytes of what it is given, in order. Time slices end at once, or when the test says so.
class PiecesDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;

  CUresult copy(const StreamRef& stream, const Copy& what, Done done) override {
    {
      std::lock_guard lock(mutex);
      if (fail_at == given.size()) return CUDA_ERROR_INVALID_ADDRESS_SPACE;
      given.push_back(what.width_bytes * what.height * what.depth);
    }
    return FakeDevice::copy(stream, what, std::move(done));
  }
  CUresult fill(const StreamRef&, const vgpu_fill& what, Done done) override {
    std::memset(reinterpret_cast<void*>(what.address), static_cast<int>(what.value), what.width);
    {
      std::lock_guard lock(mutex);
      given.push_back(what.width * what.element_bytes);
    }
    if (done) done(CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  // An executable graph is a copy of the graph.
  struct CopiedGraph final : Exec {
    GraphRef graph;
  };
  std::atomic<int> graph_copies{0};  // executable ones too
  CUresult graph_clone(const GraphRef& graph, GraphRef* clone) override {
    ++graph_copies;
    auto made = std::make_shared<FakeGraph>();
    std::map<const Node*, NodeRef> twins;
    for (const NodeRef& node : static_cast<FakeGraph&>(*graph).nodes) {
      auto twin = std::make_shared<FakeNode>();
      twin->content = static_cast<FakeNode&>(*node).content;
      for (const NodeRef& before : static_cast<FakeNode&>(*node).before) twin->before.push_back(twins[before.get()]);
      made->nodes.push_back(twins[node.get()] = twin);
    }
    *clone = std::move(made);
    return CUDA_SUCCESS;
  }
  CUresult graph_instantiate(const ContextRef&, const GraphRef& graph, uint64_t, ExecRef* exec) override {
    auto made = std::make_shared<CopiedGraph>();
    const CUresult result = graph_clone(graph, &made->graph);
    *exec = std::move(made);
    return result;
  }
  // Notes where the fills of a launch begin, node by node.
  CUresult exec_launch(const ExecRef& exec, const StreamRef&) override {
    std::lock_guard lock(mutex);
    std::vector<uint64_t> fills;
    for (const NodeRef& node : static_cast<FakeGraph&>(*static_cast<CopiedGraph&>(*exec).graph).nodes) {
      fills.push_back(static_cast<FakeNode&>(*node).content.fill.address - first_address);
    }
    launched_fills.push_back(std::move(fills));
    last_exec = exec;
    ++exec_launches;
    return CUDA_SUCCESS;
  }
  CUresult capture_begin(const StreamRef&, CUstreamCaptureMode, const GraphRef&, std::span<const NodeRef>) override {
    captures = true;
    return CUDA_SUCCESS;
  }
  CUresult capture_end(const StreamRef& stream, GraphRef* graph) override {
    captures = false;
    return FakeDevice::capture_end(stream, graph);
  }
  CUresult capture_info(const StreamRef&, CaptureInfo* info) override {
    info->status = captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  CUresult stream_wait_event(const StreamRef&, const EventRef&, uint32_t) override {
    ++waits;
    return CUDA_SUCCESS;
  }
  void time_slice_end(unsigned, TimeSliceDone done) override {
    {
      std::lock_guard lock(mutex);
      if (hold_time_slices) {
        ended.push_back(std::move(done));
        return;
      }
    }
    done(busy_ns);
  }
  void end_time_slice() {
    TimeSliceDone done;
    {
      std::lock_guard lock(mutex);
      ASSERT_FALSE(ended.empty());
      done = std::move(ended.front());
      ended.pop_front();
    }
    done(0);
  }
  std::vector<uint64_t> all_given() {
    std::lock_guard lock(mutex);
    return given;
  }

  std::mutex mutex;
  std::vector<uint64_t> given;      // guarded by mutex
  std::deque<TimeSliceDone> ended;  // guarded by mutex
  std::atomic<bool> hold_time_slices{false};
  std::atomic<size_t> fail_at{~size_t{0}};
  std::atomic<bool> captures{false};
  uint64_t first_address = 0;
  std::vector<std::vector<uint64_t>> launched_fills;  // guarded by mutex
  ExecRef last_exec;                                  // guarded by mutex
  std::atomic<uint64_t> busy_ns{0};                   // of each time slice
  std::atomic<int> exec_launches{0}, waits{0};
};

class CopyPiecesTest : public Guest {
 protected:
  using Sizes = std::vector<uint64_t>;

  CopyPiecesTest() : Guest([](uint64_t base, DeviceHost* host) { return std::make_unique<PiecesDevice>(base, host); }) {
    grant_page_->depth = 2;
    grant_page_->quantum_ns = kPiecesQuantumNs;
    process_->gate().connect(grant_page_.get(), kPiecesSlot, UniqueFd());
    make_context(ring_);
    EXPECT_TRUE(add_region(1, kPiecesHost, kPiecesHostOffset, kBytes).ok());
    for (uint64_t i = 0; i < kBytes; ++i) host()[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  ~CopyPiecesTest() override {
    grant_page_->no_arbiter = 1;
    for (Gate& gate : grant_page_->gates[kPiecesSlot]) futex_wake(&gate.granted);
    device_->finish();
    record_loop_ = nullptr;  // before the grant page goes
  }

  void settle() { (void)add_ring(kSettleRing + settles_++).call<wire::MemoryInfoReply>(Opcode::kMemoryInfo); }
  PiecesDevice& device() { return static_cast<PiecesDevice&>(*device_); }
  std::byte* host() { return ram_.data() + kPiecesHostOffset; }
  std::byte* memory() { return reinterpret_cast<std::byte*>(device_base()); }
  Gate& gate(Engine engine = Engine::kCopyIn) { return grant_page_->gates[kPiecesSlot][index_of(engine)]; }
  void grant(uint32_t number, Engine engine = Engine::kCopyIn) {
    TestRing::wait([&] { return gate(engine).asked == number; });
    gate(engine).granted = number;
    futex_wake(&gate(engine).granted);
    TestRing::wait([&] { return gate(engine).begun == number; });
  }
  uint64_t make_stream(uint32_t flags = 0) {
    return ring_.call<wire::StreamCreateReply>(Opcode::kStreamCreate, wire::StreamCreateArgs{flags, 0}).reply.stream;
  }
  void copy_in(uint64_t stream, uint32_t token = 7) {
    const vgpu_copy copy = linear_copy(device_base(), VGPU_MEMORY_DEVICE, kPiecesHost, VGPU_MEMORY_HOST, kBytes);
    ring_.send(Opcode::kCopy, wire::CopyArgs{copy, stream, {2, token}});
  }
  void short_copy(uint64_t stream, char value) {
    ring_.send(Opcode::kCopyIn, wire::CopyInArgs{device_base(), stream, 1, 0}, std::string(1, value));
  }
  static uint64_t done(uint32_t token, CUresult result = CUDA_SUCCESS) { return uint64_t{token} << 32 | result; }
  bool waits_until_done(uint32_t token, CUresult result = CUDA_SUCCESS) {
    return TestRing::wait([&] { return ring_.done_word(2) == done(token, result); });
  }

  std::unique_ptr<GrantPage> grant_page_ = std::make_unique<GrantPage>();
  TestRing ring_ = add_ring(0);
  uint32_t settles_ = 0;
};

}  // namespace bandsaw::runner
