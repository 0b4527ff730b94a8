// Records as a hostile guest could write them, against the generated checks and decoders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "guest-driver/uapi/wire_refusing.h"
#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::wire {
namespace {

using testing::HasSubstr;

std::vector<std::byte> raw_record(Opcode opcode, const void* args, size_t args_bytes, std::string_view tail = {}) {
  vgpu_record header{};
  header.opcode = static_cast<uint32_t>(opcode);
  header.seq = 7;
  header.bytes = static_cast<uint32_t>((sizeof(header) + args_bytes + tail.size() + 15) / 16 * 16);
  std::vector<std::byte> bytes(header.bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (args_bytes) std::memcpy(bytes.data() + sizeof(header), args, args_bytes);
  if (!tail.empty()) std::memcpy(bytes.data() + sizeof(header) + args_bytes, tail.data(), tail.size());
  return bytes;
}

template <typename Args>
std::vector<std::byte> record(Opcode opcode, const Args& args, std::string_view tail = {}) {
  return raw_record(opcode, &args, sizeof(args), tail);
}

void set_header(std::vector<std::byte>* bytes, vgpu_record header) {
  std::memcpy(bytes->data(), &header, sizeof(header));
}

vgpu_record header_of(const std::vector<std::byte>& bytes) {
  vgpu_record header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

const char* complaint(const std::vector<std::byte>& bytes) {
  CheckedRecord checked;
  const char* said = check(bytes, &checked);
  return said ? said : "";
}

TEST(Check, AcceptsARightRecord) {
  LibraryKernelArgs args{};
  args.name_bytes = 3;
  const auto bytes = record(Opcode::kLibraryKernel, args, "abc");
  CheckedRecord checked;
  ASSERT_EQ(check(bytes, &checked), nullptr);
  EXPECT_EQ(checked.opcode, Opcode::kLibraryKernel);
  EXPECT_EQ(checked.seq, 7u);
  EXPECT_EQ(checked.tail.size(), 3u);
}

TEST(Check, RefusesShortAndLongRecords) {
  auto bytes = record(Opcode::kMemoryAlloc, MemoryAllocArgs{});
  EXPECT_THAT(complaint({bytes.begin(), bytes.begin() + 16}), HasSubstr("shorter"));
  auto header = header_of(bytes);
  header.bytes += 16;
  set_header(&bytes, header);
  EXPECT_THAT(complaint(bytes), HasSubstr("differs"));
  EXPECT_THAT(complaint(raw_record(Opcode::kMemoryAlloc, nullptr, 0)), HasSubstr("cut off"));
  EXPECT_THAT(complaint(record(Opcode::kMemoryAlloc, MemoryAllocArgs{}, std::string(16, 'x'))), HasSubstr("wrong"));
  EXPECT_THAT(complaint(std::vector<std::byte>(VGPU_RECORD_MAX_BYTES + 16)), HasSubstr("too long"));
}

TEST(Check, RefusesUnknownOpcodes) {
  EXPECT_THAT(complaint(raw_record(Opcode::kPad, nullptr, 0)), HasSubstr("opcode"));
  EXPECT_THAT(complaint(raw_record(static_cast<Opcode>(kOpcodes), nullptr, 0)), HasSubstr("opcode"));
  EXPECT_THAT(complaint(raw_record(static_cast<Opcode>(0xffffffffu), nullptr, 0)), HasSubstr("opcode"));
}

TEST(Check, RefusesDataThatLiesAboutItsLength) {
  for (const uint32_t claimed : {0u, 17u, 0x7fffffffu, 0xfffffff0u, 0xffffffffu}) {
    LibraryKernelArgs args{};
    args.name_bytes = claimed;
    EXPECT_THAT(complaint(record(Opcode::kLibraryKernel, args, "0123456789abcdef")), HasSubstr("length")) << claimed;
  }
}

TEST(Check, RefusesNulInsideAString) {
  LibraryKernelArgs args{};
  args.name_bytes = 3;
  EXPECT_THAT(complaint(record(Opcode::kLibraryKernel, args, std::string_view("a\0b", 3))), HasSubstr("NUL"));
}

class Table : public HandleSource {
 public:
  std::shared_ptr<Object> find(HandleKind kind, uint64_t handle) override {
    return handle == living && kind_of(handle) == kind ? object : nullptr;
  }
  StreamRef find_stream(const CallContext&, uint64_t handle) override {
    return handle <= VGPU_STREAM_PER_THREAD ? stream : nullptr;
  }
  uint64_t living = 0;
  std::shared_ptr<Object> object = std::make_shared<Context>();
  StreamRef stream = std::make_shared<Stream>();
};

struct Sink : ReplySink {
  void reply(uint64_t seq, CUresult with, std::span<const std::byte> fixed, std::span<const std::byte> tail) override {
    replies++;
    last_seq = seq;
    result = with;
    body.assign(fixed.begin(), fixed.end());
    body.insert(body.end(), tail.begin(), tail.end());
    if (on_reply) on_reply();
  }
  std::function<void()> on_reply;
  int replies = 0;
  uint64_t last_seq = 0;
  CUresult result = CUDA_SUCCESS;
  std::vector<std::byte> body;
};

struct Handlers : RefusingHandlers {
  CUresult memory_alloc(const CallContext& call, uint64_t size, uint64_t* address) override {
    seen_context = call.context.handle;
    *address = size * 2;
    return CUDA_SUCCESS;
  }
  CUresult memory_free_async(const CallContext&, uint64_t, const Resolved<Stream>& stream) override {
    EXPECT_TRUE(stream);
    seen_stream = stream.handle;
    return CUDA_ERROR_INVALID_VALUE;
  }
  void copy_out(const CallContext&, uint64_t, uint64_t, const Resolved<Stream>&, CopyOutAnswer answer) override {
    later = [answer] { answer(CUDA_SUCCESS, "bytes"); };
  }
  CUresult library_kernels(const CallContext&, const Resolved<Library>&, uint32_t, uint32_t*, std::string*) override {
    ADD_FAILURE() << "called with a handle that does not resolve";
    return CUDA_SUCCESS;
  }
  CUresult memory_release(const CallContext&, const Resolved<Memory>&) override {
    release();
    return CUDA_SUCCESS;
  }
  CUresult fetch_output(const CallContext&, std::string* text) override {
    text->assign(VGPU_RING_REPLY_BYTES, 'x');
    return CUDA_SUCCESS;
  }
  uint64_t seen_context = 0, seen_stream = 99;
  std::function<void()> later, release;
};

constexpr uint64_t handle(HandleKind kind) { return uint64_t{static_cast<uint32_t>(kind)} << 56 | 5; }
constexpr uint64_t kContext = handle(HandleKind::kContext);

struct Dispatching : testing::Test {
  Dispatching() { table.living = kContext; }
  Dispatched run(std::vector<std::byte> bytes, uint64_t context = kContext) {
    auto header = header_of(bytes);
    header.context = context;
    set_header(&bytes, header);
    CheckedRecord checked;
    EXPECT_EQ(check(bytes, &checked), nullptr);
    CallContext call;
    call.sink = sink;
    return dispatch(checked, call, table, handlers);
  }
  Table table;
  std::shared_ptr<Sink> sink = std::make_shared<Sink>();
  Handlers handlers;
};

TEST_F(Dispatching, WhatACallLetGoIsGoneBeforeTheAnswer) {
  table.living = handle(HandleKind::kMemory);
  table.object = std::make_shared<Memory>();
  const std::weak_ptr<Object> released = table.object;
  handlers.release = [&] { table.object.reset(); };
  bool gone = false;
  sink->on_reply = [&] { gone = released.expired(); };
  MemoryReleaseArgs args{};
  args.memory = table.living;
  run(record(Opcode::kMemoryRelease, args), 0);
  EXPECT_EQ(sink->replies, 1);
  EXPECT_TRUE(gone);
}

TEST_F(Dispatching, AnswersASynchronousCall) {
  MemoryAllocArgs args{};
  args.size = 21;
  run(record(Opcode::kMemoryAlloc, args));
  EXPECT_EQ(sink->replies, 1);
  EXPECT_EQ(sink->last_seq, 7u);
  EXPECT_EQ(sink->result, CUDA_SUCCESS);
  ASSERT_EQ(sink->body.size(), sizeof(MemoryAllocReply));
  EXPECT_EQ(reinterpret_cast<const MemoryAllocReply*>(sink->body.data())->address, 42u);
  EXPECT_EQ(handlers.seen_context, kContext);
}

TEST_F(Dispatching, RefusesWithoutAContext) {
  run(record(Opcode::kMemoryAlloc, MemoryAllocArgs{}), 0);
  EXPECT_EQ(sink->result, CUDA_ERROR_INVALID_CONTEXT);
  run(record(Opcode::kMemoryAlloc, MemoryAllocArgs{}), kContext + 1);
  EXPECT_EQ(sink->result, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(handlers.seen_context, 0u);
}

TEST_F(Dispatching, AnErrorOfAnAsynchronousCallIsNotAReply) {
  const Dispatched dispatched = run(record(Opcode::kMemoryFreeAsync, MemoryFreeAsyncArgs{}));
  EXPECT_EQ(dispatched.result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(handlers.seen_stream, 0u);
  EXPECT_EQ(sink->replies, 0);
}

TEST_F(Dispatching, RefusesHandlesOfAnotherKindAndDeadOnes) {
  for (const uint64_t bad : {uint64_t{0}, kContext, handle(HandleKind::kLibrary), ~uint64_t{0}, uint64_t{3}}) {
    LibraryKernelsArgs args{};
    args.library = bad;
    run(record(Opcode::kLibraryKernels, args));
    EXPECT_EQ(sink->result, CUDA_ERROR_INVALID_HANDLE) << bad;
    MemoryFreeAsyncArgs free{};
    free.stream = bad > 2 ? bad : 3;
    EXPECT_EQ(run(record(Opcode::kMemoryFreeAsync, free)).result, CUDA_ERROR_INVALID_HANDLE) << bad;
  }
}

TEST_F(Dispatching, AnswersLater) {
  EXPECT_EQ(run(record(Opcode::kCopyOut, CopyOutArgs{})).outcome, Outcome::kLater);
  EXPECT_EQ(sink->replies, 0);
  handlers.later();
  EXPECT_EQ(sink->replies, 1);
  EXPECT_EQ(sink->body.size(), sizeof(CopyOutReply) + 5);
}

TEST_F(Dispatching, ABodyThatDoesNotFitIsRefused) {
  run(raw_record(Opcode::kFetchOutput, nullptr, 0));
  EXPECT_EQ(sink->result, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_TRUE(sink->body.empty());
}

// No record may crash the decoders or be called right without being so.
TEST_F(Dispatching, EveryOpcodeWithArgumentsOfOnes) {
  for (uint32_t opcode = 1; opcode < kOpcodes; opcode++) {
    std::vector<std::byte> args(kCalls[opcode].args_bytes, std::byte{0xff});
    if (kCalls[opcode].tail_length >= 0) std::memset(args.data() + kCalls[opcode].tail_length, 0, 4);
    const int replies = sink->replies;
    const Dispatched outcome = run(raw_record(static_cast<Opcode>(opcode), args.data(), args.size()));
    if (static_cast<Opcode>(opcode) == Opcode::kMemoryAlloc) continue;  // its handler here takes any size
    const bool sync = kCalls[opcode].mode == Mode::kSync;
    EXPECT_EQ(sink->replies, replies + (sync ? 1 : 0)) << kCalls[opcode].name;
    EXPECT_NE(sync ? sink->result : outcome.result, CUDA_SUCCESS) << kCalls[opcode].name;
  }
}

}  // namespace
}  // namespace bandsaw::wire
