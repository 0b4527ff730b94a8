// The order of each call among those that wait, call by call: what wire.toml says of it, as the runner reads it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "backend/runner/wire/stream_order.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kTag = 0x1000;  // of the first word of the arguments; the next word has the next number

// Which word of the arguments `value` is, or "-".
std::string word(uint64_t value) { return value >= kTag ? std::to_string((value - kTag) * 8) : "-"; }

// "KIND stream=OFFSET event=OFFSET,OFFSET flags", the offsets in bytes from the beginning of the arguments.
std::string describe(uint32_t opcode) {
  std::array<uint64_t, VGPU_RECORD_MAX_BYTES / 8> args{};
  for (size_t i = 0; i < args.size(); ++i) args[i] = kTag + i;
  wire::CheckedRecord record;
  record.info = &wire::kCalls[opcode];
  record.opcode = static_cast<wire::Opcode>(opcode);
  record.args = reinterpret_cast<const std::byte*>(args.data());
  const RecordUse use = use_of(record, 0);
  constexpr const char* kOrders[] = {"all", "none", "work", "ask", "event", "end", "all"};
  std::string text = kOrders[static_cast<size_t>(use.order)];
  if (use.stream) text += " stream=" + word(use.stream);
  if (use.event) text += " event=" + word(use.event);
  if (use.other_event) text += " and " + word(use.other_event);
  if (use.query) text += " query";
  if (use.records) text += " records";
  if (use.waits) text += " waits";
  if (use.order == wire::Order::kGraph) text += " graph";
  return text;
}

// Every call that is not here comes after all that was before it.
const std::map<std::string, std::string> kUses = {
    {"call_ids", "none"},
    {"device_info", "none"},
    {"memory_info", "none"},
    {"next_callback", "none"},
    {"fetch_output", "none"},
    {"library_load", "none"},
    {"library_kernels", "none"},
    {"library_kernel", "none"},
    {"library_managed", "none"},
    {"library_global", "none"},
    {"variable_around", "none"},
    {"kernel_function", "none"},
    {"module_load", "none"},
    {"module_function", "none"},
    {"module_functions", "none"},
    {"module_global", "none"},
    {"memory_alloc", "none"},
    {"stream_create", "none"},
    {"stream_create_part", "none"},
    {"event_create", "none"},
    {"occupancy", "none"},
    {"tensor_map_encode", "none"},
    {"tensor_map_move", "none"},
    {"pool_create", "none"},
    {"pool_default", "none"},
    {"pool_get_attribute", "none"},
    {"array_create", "none"},
    {"mipmap_create", "none"},
    {"mipmap_level", "none"},
    {"texture_create", "none"},
    {"surface_create", "none"},
    {"texture_linear_width", "none"},
    {"memory_granularity", "none"},
    {"memory_create", "none"},
    {"memory_release", "none"},
    {"address_reserve", "none"},
    {"address_free", "none"},
    {"memory_map", "none"},
    {"memory_set_access", "none"},
    {"memory_get_access", "none"},
    {"graph_create", "none"},
    {"link_create", "none"},
    {"link_add", "none"},
    {"link_complete", "none"},
    {"link_image", "none"},
    {"link_destroy", "none"},
    {"occupancy_clusters", "none"},
    {"stream_destroy", "work stream=0"},
    {"memory_alloc_async", "work stream=16"},
    {"memory_free_async", "work stream=8"},
    {"graph_memory_free", "work stream=8"},
    {"copy", fmt::format("work stream={}", sizeof(vgpu_copy))},
    {"copy_in", "work stream=8"},
    {"copy_out", "work stream=16"},
    {"fill", fmt::format("work stream={}", sizeof(vgpu_fill))},
    {"stream_callback", "work stream=0"},
    {"stream_write_value", "work stream=0"},
    {"stream_wait_value", "work stream=0"},
    {"stream_hold", "work stream=0"},
    {"launch", fmt::format("work stream={}", offsetof(vgpu_launch, stream))},
    {"stream_wait_event", "work stream=0 event=8 waits"},
    {"event_record", "work stream=8 event=0 records"},
    {"exec_launch", "all stream=8 graph"},
    {"stream_synchronize", "ask stream=0"},
    {"stream_query", "ask stream=0 query"},
    {"event_query", "event event=0 query"},
    {"event_synchronize", "event event=0"},
    {"event_elapsed", "event event=0 and 8 query"},
    {"event_destroy", "end event=0"},
};

TEST(RecordUse, EveryCallHasItsOrder) {
  size_t found = 0;
  for (uint32_t opcode = 1; opcode < wire::kOpcodes; ++opcode) {
    const std::string name = wire::kCalls[opcode].name;
    const auto use = kUses.find(name);
    found += use != kUses.end();
    EXPECT_EQ(describe(opcode), use == kUses.end() ? "all" : use->second) << name;
  }
  EXPECT_EQ(found, kUses.size());
}

// The calls for which a field of CallInfo is true.
std::set<std::string> calls_with(bool wire::CallInfo::* field) {
  std::set<std::string> names;
  for (const wire::CallInfo& info : wire::kCalls) {
    if (info.*field) names.insert(info.name);
  }
  return names;
}

TEST(RecordUse, TheSameCallsTellOfErrorsAndSurviveThem) {
  EXPECT_EQ(calls_with(&wire::CallInfo::synchronises),
            (std::set<std::string>{"context_synchronize", "stream_synchronize", "stream_query", "event_synchronize",
                                   "event_query", "memory_free", "settle", "copy_out"}));
  EXPECT_EQ(calls_with(&wire::CallInfo::survives_poison),
            (std::set<std::string>{"call_ids", "device_info", "fetch_output", "next_callback", "context_destroy"}));
}

TEST(RecordUse, CopiesAndFillsHaveADoneWord) {
  for (const wire::CallInfo& info : wire::kCalls) {
    const std::string name = info.name;
    const int32_t expected = name == "copy"   ? static_cast<int32_t>(offsetof(wire::CopyArgs, done))
                             : name == "fill" ? static_cast<int32_t>(offsetof(wire::FillArgs, done))
                                              : -1;
    EXPECT_EQ(info.done, expected) << name;
  }
}

TEST(RecordUse, ArgumentsAreThoseOfTheCallAlone) {
  wire::CopyInArgs args{};
  args.destination = 7;
  wire::CheckedRecord record;
  record.opcode = wire::Opcode::kCopyIn;
  record.args = reinterpret_cast<const std::byte*>(&args);
  EXPECT_EQ(wire::read_args<wire::CopyInArgs>(record)->destination, 7u);
  EXPECT_FALSE(wire::read_args<wire::CopyOutArgs>(record));
}

TEST(EngineOf, ACopyIsThatOfItsEndInHostMemoryBeforeAndAfterTranslation) {
  for (const auto& [from_host, to_host, engine] :
       {std::tuple(false, false, Engine::kCompute), std::tuple(true, false, Engine::kCopyIn),
        std::tuple(false, true, Engine::kCopyOut), std::tuple(true, true, Engine::kCopyIn)}) {
    Copy copy;
    copy.source.host = from_host;
    copy.destination.host = to_host;
    EXPECT_EQ(engine_of(copy), engine);
    vgpu_copy wire{};
    wire.source.kind = from_host ? VGPU_MEMORY_HOST : VGPU_MEMORY_DEVICE;
    wire.destination.kind = to_host ? VGPU_MEMORY_HOST : VGPU_MEMORY_ARRAY;
    EXPECT_EQ(engine_of(wire), engine);
  }
}

}  // namespace
}  // namespace bandsaw::runner
