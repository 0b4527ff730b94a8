// What a guest gets that breaks the rules: itself cut off with a clear error, and nothing else.
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

using wire::Opcode;

class Hostile : public Guest {
 protected:
  // The guest is cut off, and says so in its ring and in the answer to what comes next.
  void expect_cut_off(TestRing& ring) {
    TestRing::wait([&] { return TestRing::load(ring.header->sticky_error) == CUDA_ERROR_INVALID_VALUE; });
    ring.tail = TestRing::load(ring.header->head);
    EXPECT_EQ(ring.call(Opcode::kMemoryInfo).result, CUDA_ERROR_INVALID_VALUE);
    EXPECT_TRUE(process_->protocol_broken());
  }
  void expect_fine(TestRing& ring) {
    EXPECT_EQ(ring.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
    EXPECT_FALSE(process_->protocol_broken());
  }
};

struct BadRecord {
  const char* what;
  uint32_t bytes;      // what the record says of itself
  uint32_t published;  // what the tail says
  uint32_t opcode;
};

class HostileRecord : public Hostile, public testing::WithParamInterface<BadRecord> {};

TEST_P(HostileRecord, CutsTheGuestOff) {
  TestRing ring = add_ring(0);
  vgpu_record record{GetParam().bytes, GetParam().opcode, 1, 0, 0};
  ring.write_raw(&record, sizeof(record));
  ring.publish_tail(GetParam().published);
  expect_cut_off(ring);
}

constexpr auto kInfo = static_cast<uint32_t>(Opcode::kMemoryInfo);
INSTANTIATE_TEST_SUITE_P(
    Framing, HostileRecord,
    testing::Values(BadRecord{"no length", 0, 32, kInfo}, BadRecord{"shorter than a header", 16, 32, kInfo},
                    BadRecord{"not aligned", 40, 48, kInfo}, BadRecord{"longer than published", 64, 32, kInfo},
                    BadRecord{"oversized", VGPU_RECORD_MAX_BYTES + 16, VGPU_RECORD_MAX_BYTES + 16, kInfo},
                    BadRecord{"huge", 0xfffffff0, 32, kInfo},
                    BadRecord{"padding that does not reach the end", 32, 32, 0},
                    BadRecord{"padding beyond the tail", VGPU_RING_RECORDS_BYTES, 32, 0},
                    BadRecord{"tail not aligned", 32, 33, kInfo},
                    BadRecord{"tail too far ahead", 32, VGPU_RING_RECORDS_BYTES + 16, kInfo},
                    BadRecord{"unknown opcode", 32, 32, wire::kOpcodes},
                    BadRecord{"opcode out of any range", 32, 32, 0xffffffff},
                    BadRecord{"arguments too long", 48, 48, kInfo},
                    BadRecord{"arguments cut off", 32, 32, static_cast<uint32_t>(Opcode::kMemoryAlloc)}),
    [](const auto& record) {
      std::string name = record.param.what;
      for (char& c : name) c = c == ' ' ? '_' : c;
      return name;
    });

TEST_F(Hostile, TailRunningBackwards) {
  TestRing ring = add_ring(0);
  ring.call(Opcode::kMemoryInfo);
  ring.publish_tail(ring.tail - 16);
  expect_cut_off(ring);
}

TEST_F(Hostile, ReplayedRecord) {
  TestRing ring = add_ring(0);
  ring.call(Opcode::kMemoryInfo);
  ring.send_as(1, Opcode::kMemoryInfo, nullptr, 0);
  expect_cut_off(ring);
}

TEST_F(Hostile, NumberZero) {
  TestRing ring = add_ring(0);
  ring.send_as(uint64_t{0}, Opcode::kMemoryInfo, nullptr, 0);
  expect_cut_off(ring);
}

TEST_F(Hostile, DuplicateNumbersInTwoRings) {
  TestRing first = add_ring(0), second = add_ring(1);
  first.call(Opcode::kMemoryInfo);
  first.call(Opcode::kMemoryInfo);
  second.send_as(2, Opcode::kMemoryInfo, nullptr, 0);
  expect_cut_off(second);
  EXPECT_EQ(first.call(Opcode::kMemoryInfo).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Hostile, AGapStallsAndDoesNotSpin) {
  TestRing ring = add_ring(0), other = add_ring(1);
  ring.send_as(2, Opcode::kMemoryInfo, nullptr, 0);
  TestRing::wait([&] { return TestRing::load(other.header->host_sleeping) == 1; });
  EXPECT_EQ(TestRing::load(ring.header->reply_seq), 0u);
  other.send_as(1, Opcode::kMemoryInfo, nullptr, 0);
  EXPECT_EQ(ring.answer(2).result, CUDA_SUCCESS);
}

TEST_F(Hostile, SecondCallWhileOneWaits) {
  TestRing ring = add_ring(0);
  ring.send(Opcode::kNextCallback, wire::NextCallbackArgs{0});
  ring.send_as(++last_seq_, Opcode::kMemoryInfo, nullptr, 0);
  expect_cut_off(ring);
}

TEST_F(Hostile, LengthOfDataThatIsNotThere) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ring.send(Opcode::kCopyIn, wire::CopyInArgs{device_base(), 0, 0xffffffff, 0}, "four");
  expect_cut_off(ring);
}

TEST_F(Hostile, RecordRewrittenWhileItIsRead) {
  // A thread flips the record's length, opcode and arguments as fast as it can. Whatever the runner copies out, it
  // must check the copy: the guest may be cut off, the runner must live and go on answering.
  TestRing ring = add_ring(0);
  make_context(ring);
  std::atomic<bool> stop{false};
  auto* words = reinterpret_cast<uint32_t*>(ram_.data() + VGPU_RING_RECORDS_OFFSET);
  std::thread vandal([&] {
    for (uint32_t i = 1; !stop; i = i * 1664525 + 1013904223) {
      // Bit 23: a sequence number just ahead of its turn is legal, and its record waits for those before it.
      std::atomic_ref<uint32_t>(words[(i >> 8) % 8192]).store(i | 1u << 23, std::memory_order_relaxed);
    }
  });
  const wire::CopyInArgs args{device_base(), 0, 64, 0};
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (!process_->protocol_broken() && std::chrono::steady_clock::now() < until) {
    const std::string data(64, '.');
    if (VGPU_RING_RECORDS_BYTES - ring.tail % VGPU_RING_RECORDS_BYTES <
        sizeof(vgpu_record) + sizeof(args) + data.size())
      break;
    const auto bytes = TestRing::record(Opcode::kCopyIn, ++last_seq_, ring.context, &args, sizeof(args), data);
    ring.write_raw(bytes.data(), bytes.size());
    ring.publish();
    TestRing::wait([&] { return TestRing::load(ring.header->head) == ring.tail || process_->protocol_broken(); });
  }
  stop = true;
  vandal.join();
  TestRing other = add_ring(1);
  EXPECT_NE(other.call(Opcode::kMemoryInfo).result, -1);
}

TEST_F(Hostile, SequenceNumberThatCannotComeToItsTurn) {
  TestRing ring = add_ring(0);
  ring.send_as(uint64_t{1} << 40, Opcode::kMemoryInfo, nullptr, 0);
  TestRing::wait([&] { return process_->protocol_broken(); });
}

TEST_F(Hostile, HandlesThatAreNotOnes) {
  TestRing ring = add_ring(0);
  const uint64_t context = make_context(ring);
  const auto event = ring.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0}).reply.event;
  for (const uint64_t handle : std::vector<uint64_t>{0, 1, ~0ull, event + 1, event ^ (1ull << 32), context,
                                                     event | 0xff000000, event ^ (1ull << 56)}) {
    EXPECT_EQ(ring.call(Opcode::kEventQuery, wire::EventQueryArgs{handle}).result, CUDA_ERROR_INVALID_HANDLE)
        << std::hex << handle;
  }
  EXPECT_EQ(ring.call(Opcode::kContextDestroy, wire::ContextDestroyArgs{event}).result, CUDA_ERROR_INVALID_CONTEXT);
  ring.context = event;  // the record's own context is a handle like any other
  EXPECT_EQ(ring.call(Opcode::kStreamQuery, wire::StreamQueryArgs{0}).result, CUDA_ERROR_INVALID_CONTEXT);
  expect_fine(ring);
}

TEST_F(Hostile, HandlesOfAnotherProcessMeanNothing) {
  TestRing ring = add_ring(0);
  make_context(ring);
  HandleTable foreign;
  for (int i = 0; i < 5; ++i) foreign.add(HandleKind::kStream, std::make_shared<Stream>());
  const uint64_t handle = foreign.add(HandleKind::kStream, std::make_shared<Stream>());
  EXPECT_EQ(ring.call(Opcode::kStreamQuery, wire::StreamQueryArgs{handle}).result, CUDA_ERROR_INVALID_HANDLE);
  expect_fine(ring);
}

TEST_F(Hostile, CopiesOutsideRegionsAndWithLengthsThatOverflow) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const uint64_t region = 0x40000000;
  ASSERT_TRUE(add_region(1, region, 4 << 20, 2 * kPage).ok());
  uint32_t token = 0;
  const auto refused = [&](vgpu_copy copy) {
    ring.send(Opcode::kCopy, wire::CopyArgs{copy, 0, {0, ++token}});
    TestRing::wait([&] { return ring.done_word(0) >> 32 == token; });
    return static_cast<uint32_t>(ring.done_word(0)) == CUDA_ERROR_INVALID_VALUE;
  };
  const auto from = [&](uint64_t address, uint64_t bytes) {
    return linear_copy(device_base(), VGPU_MEMORY_DEVICE, address, VGPU_MEMORY_HOST, bytes);
  };
  EXPECT_FALSE(refused(from(region, 2 * kPage)));
  EXPECT_TRUE(refused(from(region, 2 * kPage + 1)));
  EXPECT_TRUE(refused(from(region - 1, 2)));
  EXPECT_TRUE(refused(from(region + 2 * kPage, 1)));
  EXPECT_TRUE(refused(from(region, ~0ull)));
  EXPECT_TRUE(refused(from(~0ull, 2)));
  EXPECT_TRUE(refused(from(0, 1)));
  EXPECT_TRUE(refused(linear_copy(region, VGPU_MEMORY_HOST, kWindowBase, VGPU_MEMORY_DEVICE, 8)));
  EXPECT_TRUE(refused(
      linear_copy(region, VGPU_MEMORY_HOST, device_base() + VGPU_WINDOW_DEVICE_OFFSET - 4, VGPU_MEMORY_DEVICE, 8)));
  EXPECT_TRUE(refused(linear_copy(device_base() - 4, VGPU_MEMORY_DEVICE, region, VGPU_MEMORY_HOST, 8)));
  vgpu_copy box = from(region, 16);
  box.height = 4;
  EXPECT_TRUE(refused(box));  // pitch 0 is below the width
  box.source.pitch = box.destination.pitch = kPage;
  EXPECT_TRUE(refused(box));  // the fourth row lies outside
  box.source.pitch = 1ull << 62;
  EXPECT_TRUE(refused(box));
  box.source.pitch = 32;
  box.source.x_bytes = ~0ull;
  EXPECT_TRUE(refused(box));
  box.source.x_bytes = 0;
  box.source.y = ~0ull / 16;
  EXPECT_TRUE(refused(box));
  box.source.y = 0;
  EXPECT_FALSE(refused(box));
  box.depth = 1ull << 61;
  box.source.height = box.destination.height = 8;
  EXPECT_TRUE(refused(box));
  box.depth = 1;
  box.source.kind = 77;
  EXPECT_TRUE(refused(box));
  expect_fine(ring);
}

TEST_F(Hostile, ReadOnlyPagesAreNotWritten) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, kPage, VGPU_REGION_READ_ONLY).ok());
  const auto out = linear_copy(0x40000000, VGPU_MEMORY_HOST, device_base(), VGPU_MEMORY_DEVICE, 8);
  ring.send(Opcode::kCopy, wire::CopyArgs{out, 0, {0, 1}});
  TestRing::wait([&] { return ring.done_word(0) == ((1ull << 32) | CUDA_ERROR_INVALID_VALUE); });
}

TEST_F(Hostile, SizesThatNoOneHas) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const auto image = [&](uint64_t address, uint64_t size) {
    return ring.call<wire::LibraryLoadReply>(Opcode::kLibraryLoad, wire::LibraryLoadArgs{address, size}).result;
  };
  EXPECT_EQ(image(0x40000000, ~0ull), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(image(0x40000000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(image(0x40000000, 100), CUDA_ERROR_INVALID_VALUE);
  const wire::CopyOutArgs out{device_base(), VGPU_INLINE_BYTES_MAX + 1, 0};
  EXPECT_EQ(ring.call<wire::CopyOutReply>(Opcode::kCopyOut, out).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ring.call<wire::MemoryAllocReply>(Opcode::kMemoryAlloc, wire::MemoryAllocArgs{~0ull}).result,
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ring.call(Opcode::kManagedAdd, wire::ManagedAddArgs{0x40000000, ~0ull}).result, CUDA_ERROR_INVALID_VALUE);
  expect_fine(ring);
}

TEST_F(Hostile, GraphPayloadsOfTheWrongShape) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const auto graph = ring.call<wire::GraphCreateReply>(Opcode::kGraphCreate).reply.graph;
  const auto add = [&](uint32_t type, uint32_t dependencies, std::string_view data) {
    wire::GraphAddNodeArgs args{};
    args.graph = graph;
    args.type = type;
    args.dependencies = dependencies;
    args.data_bytes = static_cast<uint32_t>(data.size());
    return ring.call<wire::GraphAddNodeReply>(Opcode::kGraphAddNode, args, data).result;
  };
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_EMPTY, 0, ""), CUDA_SUCCESS);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_EMPTY, 1, ""), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_EMPTY, 0x20000000, "12345678"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_EMPTY, 1, "12345678"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_EMPTY, 0, "12345678"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_KERNEL, 0, "short"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_MEMCPY, 0, std::string(sizeof(vgpu_copy_node) - 1, 'x')), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_MEMCPY, 0, std::string(sizeof(vgpu_copy_node), 'x')), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(CU_GRAPH_NODE_TYPE_GRAPH, 0, "12345678"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(add(99, 0, ""), CUDA_ERROR_NOT_SUPPORTED);
  expect_fine(ring);
}

TEST_F(Hostile, GraphCopiesOfDroppedRegionsDoNotRun) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, kPage).ok());
  const uint64_t graph = ring.call<wire::GraphCreateReply>(Opcode::kGraphCreate).reply.graph;
  const vgpu_copy copy = linear_copy(device_base(), VGPU_MEMORY_DEVICE, 0x40000000, VGPU_MEMORY_HOST, 8);
  const uint64_t node = add_copy_node(ring, graph, copy);
  const auto read = ring.call<wire::NodeGetReply>(Opcode::kNodeGet, wire::NodeGetArgs{node});
  vgpu_copy_node back;
  ASSERT_EQ(read.tail.size(), sizeof(back));
  std::memcpy(&back, read.tail.data(), sizeof(back));
  EXPECT_EQ(back.copy.source.address, 0x40000000u);

  const auto exec =
      ring.call<wire::GraphInstantiateReply>(Opcode::kGraphInstantiate, wire::GraphInstantiateArgs{graph, 0});
  ASSERT_EQ(exec.result, CUDA_SUCCESS);
  ring.send(Opcode::kExecLaunch, wire::ExecLaunchArgs{exec.reply.exec, 0});
  EXPECT_EQ(ring.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_SUCCESS);
  std::atomic<bool> gone{false};
  ASSERT_TRUE(process_->memory().drop_region(1, [&] { gone = true; }).ok());
  EXPECT_TRUE(gone);  // the graph does not keep it
  ring.send(Opcode::kExecLaunch, wire::ExecLaunchArgs{exec.reply.exec, 0});
  EXPECT_EQ(ring.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace bandsaw::runner
