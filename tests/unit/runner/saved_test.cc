// What is kept of the calls of a process, and how it is written down for another runner.
#include <gtest/gtest.h>

#include <set>

#include "backend/runner/objects/handles.h"
#include "backend/runner/saved/journal.h"
#include "backend/runner/saved/process_state.h"

namespace bandsaw::runner::saved_test {
namespace {

using wire::Opcode;

constexpr uint64_t kContext = uint64_t{1} << 56 | 0x100000000, kStream = uint64_t{6} << 56 | 0x100000001,
                   kLibrary = uint64_t{3} << 56 | 0x100000002, kAddress = 0x4000000000;

template <typename Args>
std::vector<std::byte> record(const Args& args, uint64_t context = kContext) {
  constexpr size_t kBytes = sizeof(vgpu_record) + sizeof args;
  std::vector<std::byte> bytes((kBytes + VGPU_RECORD_ALIGN - 1) / VGPU_RECORD_ALIGN * VGPU_RECORD_ALIGN);
  const vgpu_record header{.bytes = static_cast<uint32_t>(bytes.size()),
                           .opcode = static_cast<uint32_t>(Args::kOpcode),
                           .seq = 1,
                           .context = context,
                           .reserved = 0};
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &args, sizeof args);
  return bytes;
}

class JournalTest : public ::testing::Test {
 protected:
  template <typename Args>
  void call(const Args& args, const std::vector<uint64_t>& given, size_t code = 0) {
    const auto bytes = record(args);
    wire::CheckedRecord checked;
    ASSERT_EQ(wire::check(bytes, &checked), nullptr);
    Given was;
    for (const uint64_t number : given) {
      was.give(number);
      living_.insert(number);
    }
    if (code != 0) was.set_code(std::make_shared<const std::vector<std::byte>>(code));
    journal_.add(journal_.place(), checked, was);
  }
  std::vector<JournalEntry> entries() {
    why_.clear();
    return journal_.entries(&why_);
  }

  std::set<uint64_t> living_;
  std::string why_;
  Journal journal_{[this](uint64_t number) { return living_.contains(number); }};
};

TEST_F(JournalTest, HasWhatLivesInOrder) {
  call(wire::ContextCreateArgs{}, {kContext});
  call(wire::MemoryAllocArgs{.size = 4096}, {kAddress});
  call(wire::StreamCreateArgs{}, {kStream});
  living_.erase(kAddress);
  const auto all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].given, std::vector{kContext});
  EXPECT_EQ(all[1].given, std::vector{kStream});
  EXPECT_EQ(why_, "");
}

TEST_F(JournalTest, AnAddressIsWhosHasItLast) {
  call(wire::MemoryAllocArgs{.size = 4096}, {kAddress});
  call(wire::MemoryAllocArgs{.size = 8192}, {kAddress});
  const auto all = entries();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].record, record(wire::MemoryAllocArgs{.size = 8192}));
}

// The stream may go before the memory, and the block may be larger than what was asked for.
TEST_F(JournalTest, MemoryOfAPoolIsAWholeBlockAndNeedsNoStream) {
  const auto bytes = record(wire::MemoryAllocAsyncArgs{.pool = 0, .size = 5000, .stream = kStream});
  wire::CheckedRecord checked;
  ASSERT_EQ(wire::check(bytes, &checked), nullptr);
  Given was;
  was.give(kAddress);
  was.set_value(12288);
  living_.insert(kAddress);
  journal_.add(journal_.place(), checked, was);
  const auto all = entries();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].record, record(wire::MemoryAllocAsyncArgs{.pool = 0, .size = 12288, .stream = 0}));
}

TEST_F(JournalTest, OfASettingTheLastValueIsKept) {
  call(wire::ContextCreateArgs{}, {kContext});
  for (const uint64_t value : {1024, 2048, 4096}) call(wire::ContextSetLimitArgs{.limit = 1, .value = value}, {});
  call(wire::ContextSetLimitArgs{.limit = 2, .value = 7}, {});
  EXPECT_EQ(entries().size(), 3u);
  call(wire::ContextResetArgs{.context = kContext}, {});
  EXPECT_EQ(entries().size(), 1u) << "the settings have gone";
}

TEST_F(JournalTest, StaysSmall) {
  call(wire::ContextCreateArgs{}, {kContext});
  for (uint64_t i = 0; i < 100000; ++i) {
    call(wire::StreamCreateArgs{}, {kStream + i * 0x100000000});
    living_.erase(kStream + i * 0x100000000);
  }
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(JournalTest, SaysWhatItHasNotKept) {
  call(wire::LibraryLoadArgs{.image = 0, .size = 1}, {kLibrary}, Journal::kCodeMost);
  entries();
  EXPECT_EQ(why_, "");
  call(wire::LibraryLoadArgs{.image = 0, .size = 1}, {kLibrary + 1}, 1);
  entries();
  EXPECT_EQ(why_, "more than 64 MiB of code");
  living_.erase(kLibrary + 1);
  entries();
  EXPECT_EQ(why_, "") << "it has gone";
}

// Memory that it reads may have been given after it.
TEST_F(JournalTest, ATextureIsMadeLast) {
  constexpr uint64_t kTexture = uint64_t{14} << 56 | 0x100000003;
  call(wire::TextureCreateArgs{}, {kTexture});
  call(wire::MemoryAllocArgs{.size = 4096}, {kAddress});
  const auto all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].given, std::vector{kTexture});
}

TEST(HandlesAgain, AreGivenAgain) {
  HandleTable first;
  const uint64_t gone = first.add(HandleKind::kEvent, std::make_shared<Event>());
  const uint64_t stream = first.add(HandleKind::kStream, std::make_shared<Stream>());
  first.remove(HandleKind::kEvent, gone);
  const uint64_t event = first.add(HandleKind::kEvent, std::make_shared<Event>());
  first.remove(HandleKind::kStream, stream);

  HandleTable second;
  second.begin_again(first.generations());
  Given given({event}, nullptr);
  {
    const Given::Scope scope(&given);
    EXPECT_EQ(second.add(HandleKind::kStream, std::make_shared<Stream>()), 0u) << "it was an event";
    EXPECT_EQ(second.add(HandleKind::kEvent, std::make_shared<Event>()), event);
    EXPECT_EQ(second.add(HandleKind::kEvent, std::make_shared<Event>()), 0u) << "it was given nothing else";
  }
  EXPECT_TRUE(given.all_given());
  second.finish_again();
  const uint64_t next = second.add(HandleKind::kStream, std::make_shared<Stream>());
  EXPECT_NE(next, stream) << "a handle that was gone stays so";
  EXPECT_EQ(static_cast<uint32_t>(next), static_cast<uint32_t>(stream));
}

ProcessState some_state() {
  ProcessState state;
  state.window_base = VGPU_WINDOW_BASE_0;
  state.last_seq = 77;
  state.output = "said";
  state.generations = {1, 5, 2};
  state.calls = {{record(wire::ContextCreateArgs{}), {kContext}, nullptr, false, 0},
                 {record(wire::LibraryLoadArgs{}),
                  {kLibrary, kAddress},
                  std::make_shared<const std::vector<std::byte>>(10, std::byte(3)),
                  true,
                  5}};
  state.mappings.memory = {{.key = 4096, .bytes = 2 << 20, .handles = {11, 12}}, {.key = 8192, .bytes = 2 << 20}};
  state.mappings.reservations = {{.address = kAddress, .bytes = 4 << 20, .mappings = {{.memory = 1, .access = 3}, {}}}};
  state.graphs.graphs = {{.handle = 8,
                          .owner = 0,
                          .inner = false,
                          .nodes = {{.handle = 9, .type = 2, .payload = "p"}, {.original_graph = 0, .bodies = {3}}},
                          .edges = {0, 1},
                          .conditions = {6}}};
  state.code = {{kLibrary, {{"counter", 0x7e0000001000, 4}, {"seven", 0x7e0000001100, 16}}}, {}};
  state.heaps = {{kContext, {kAddress, 8192, {kAddress, 16}}}};
  state.graphs.shared.memory = {{kAddress, 64, 1, 1}};
  state.graphs.shared.conditions = {{6, 1, 2, 1, 1}};
  const std::vector<StepState> body = {{.type = 1, .payload = "b"}};
  state.graphs.execs = {
      {.handle = 7, .context = kContext, .flags = 4, .steps = {{.graph = 0, .after = {0}, .bodies = {body, {}}}, {}}}};
  state.events = {{5, -3}};
  state.rings = {{.id = 2, .state = {.head = 128, .late_error = CUDA_ERROR_INVALID_VALUE}, .pending = {}}};
  state.waiting = {{2, record(wire::StreamCreateArgs{})}};
  return state;
}

TEST(ProcessStates, AreReadAsTheyWereWritten) {
  const auto bytes = to_bytes(some_state());
  const auto read = read_process_state(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(to_bytes(read.value()), bytes);
  EXPECT_EQ(read.value().last_seq, 77u);
  EXPECT_EQ(read.value().calls[1].code->size(), 10u);
  EXPECT_EQ(read.value().mappings.memory[0].handles[1], 12u);
  EXPECT_EQ(read.value().mappings.reservations[0].mappings[0].memory, 1u);
  EXPECT_EQ(read.value().code[0].variables[1].name, "seven");
  EXPECT_EQ(read.value().graphs.graphs[0].nodes[0].payload, "p");
  EXPECT_EQ(read.value().graphs.execs[0].steps[0].after, std::vector<uint32_t>{0});
  EXPECT_EQ(read.value().heaps[0].second.live[1], 16u);
  EXPECT_EQ(read.value().graphs.execs[0].steps[0].bodies[0][0].payload, "b");
  EXPECT_EQ(read.value().rings[0].state.late_error, CUDA_ERROR_INVALID_VALUE);
}

TEST(ProcessStates, OfWhichSomethingLacksAreRefused) {
  const auto bytes = to_bytes(some_state());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(read_process_state(std::span(bytes).first(length)).ok()) << length;
  }
  auto longer = bytes;
  longer.push_back(std::byte(0));
  EXPECT_FALSE(read_process_state(longer).ok());
  auto other_release = bytes;
  other_release[0] ^= std::byte(1);
  EXPECT_NE(read_process_state(other_release).status().message().find("another release"), std::string::npos);
}

// Lengths that promise more than there is take no memory.
TEST(ProcessStates, WithAnyByteChangedAreReadOrRefused) {
  const auto bytes = to_bytes(some_state());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int value : {0x00, 0x7f, 0xff}) {
      auto changed = bytes;
      changed[at] = std::byte(value);
      (void)read_process_state(changed);
    }
  }
}

}  // namespace
}  // namespace bandsaw::runner::saved_test
