#include "vgpu-sched/ptx/persistent.h"

#include <algorithm>
#include <utility>

#include "vgpu-sched/ptx/flushing.h"
#include "vgpu-sched/ptx/leaving.h"
#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/spin.h"
#include "vgpu-sched/ptx/transplant.h"

namespace bandsaw::ptx {
namespace {

// A whole unit of what GPUs give shared memory by. What comes behind it keeps its place within one, as the compiler
// makes wide loads and stores of places that it knows to be aligned, whatever the program says of them.
constexpr uint64_t kTicketBytes = 128;

// One thread claims for all. The first barrier waits until nobody is in the last block any more, the second until the
// ticket lies there; `bar.warp.sync` makes one of a warp that parted in the last block. NUMBER is the barrier's; BEGIN,
// KEEP and REDO are those of flushing.h; ENTER, LIMIT and LEAVE those of blocks that are limited, or told apart.
const char* const kClaim = R"(
  .shared .align 128 .b8 $ticket[128];
  .reg .b32 %$ticket, %$blocks, %$stop, %$thread, %$other;
  .reg .b64 %$at, %$place;
  .reg .pred %$p;
  ld.param.b32 %$blocks, [$blocks];
BEGIN
ENTER
$again:
  barrier.sync NUMBER;
  mov.u32 %$thread, %tid.x;
  mov.u32 %$other, %tid.y;
  or.b32 %$thread, %$thread, %$other;
  mov.u32 %$other, %tid.z;
  or.b32 %$thread, %$thread, %$other;
  setp.ne.u32 %$p, %$thread, 0;
  @%$p bra $claimed;
KEEP
  ld.param.b64 %$at, [$stop];
  ld.volatile.global.u32 %$stop, [%$at];
  mov.u32 %$ticket, 4294967295;
  setp.ne.u32 %$p, %$stop, 0;
  @%$p bra $told;
LIMIT
REDO
  ld.param.b64 %$at, [$counter];
  atom.global.add.u32 %$ticket, [%$at], 1;
$told:
LEAVE
  st.shared.b32 [$ticket], %$ticket;
$claimed:
  barrier.sync NUMBER;
  bar.warp.sync 4294967295;
  ld.shared.b32 %$ticket, [$ticket];
  setp.ge.u32 %$p, %$ticket, %$blocks;
  @%$p exit;
)";

// The number on the SM is the first thread's alone. The SM is asked for once, as a block may be moved to another.
const char* const kEnter = R"(
  .reg .b32 %$mine;
  .reg .b64 %$here;
  mov.u32 %$mine, 0;
  mov.u64 %$here, 0;
  mov.u32 %$thread, %tid.x;
  mov.u32 %$other, %tid.y;
  or.b32 %$thread, %$thread, %$other;
  mov.u32 %$other, %tid.z;
  or.b32 %$thread, %$thread, %$other;
  setp.ne.u32 %$p, %$thread, 0;
  @%$p bra $entered;
  mov.u32 %$other, %smid;
  and.b32 %$other, %$other, LAST_SM;
  mul.wide.u32 %$at, %$other, 4;
  ld.param.b64 %$here, [$sm_counters];
  add.u64 %$here, %$here, %$at;
  atom.global.add.u32 %$mine, [%$here], 1;
$entered:
)";
const char* const kLimit = R"(
  ld.param.b64 %$at, [$limit];
  ld.volatile.global.u32 %$stop, [%$at];
  setp.ge.u32 %$p, %$mine, %$stop;
  @%$p bra $told;
)";
const char* const kLeave = R"(
  setp.lt.u32 %$p, %$ticket, %$blocks;
  @%$p bra $stays;
  atom.global.add.u32 %$other, [%$here], 4294967295;
$stays:
)";

// The place is all threads', as they look for its stop word where they may drop what they run.
const char* const kFindPlace = R"(
  .reg .b32 %$place_sm;
  .reg .b64 %$stamp_at, %$told_at, %$stamp;
  mov.u32 %$other, %ctaid.x;
  ld.param.b32 %$stop, [$first_place];
  add.u32 %$other, %$other, %$stop;
  and.b32 %$other, %$other, LAST_PLACE;
  ld.param.b64 %$at, [$places];
  mul.wide.u32 %$stamp_at, %$other, 8;
  add.u64 %$stamp_at, %$stamp_at, %$at;
  mul.wide.u32 %$told_at, %$other, 4;
  add.u64 %$told_at, %$told_at, %$at;
)";
const char* const kAskPlace = R"(
  ld.volatile.global.u32 %$stop, [%$told_at+STOPS_AT];
  setp.ne.u32 %$p, %$stop, 0;
  @%$p bra $told;
)";
const char* const kStamp = R"(
  mov.u64 %$stamp, %globaltimer;
  shr.u64 %$stamp, %$stamp, STAMP_SHIFT;
  and.b64 %$stamp, %$stamp, 4294967295;
  mov.u32 %$place_sm, %smid;
  cvt.u64.u32 %$at, %$place_sm;
  shl.b64 %$at, %$at, 32;
  or.b64 %$stamp, %$stamp, %$at;
  setp.lt.u32 %$p, %$ticket, %$blocks;
  @%$p bra $stamped;
  mov.u64 %$stamp, 0xffffffffffffffff;
$stamped:
  st.volatile.global.b64 [%$stamp_at], %$stamp;
)";

void replace_all(std::string* text, std::string_view word, const std::string& by) {
  for (size_t at = text->find(word); at != text->npos; at = text->find(word, at + by.size()))
    text->replace(at, word.size(), by);
}

std::string claim_text(int barrier, const SlicingOptions& options) {
  std::string text = kClaim;
  const FlushingClaim more = flushing_claim(options.flush);
  const auto either = [&options](const char* limited, const char* told_apart) {
    return options.limited ? limited : options.told_apart ? told_apart : "";
  };
  replace_all(&text, "ENTER\n", either(kEnter, kFindPlace));
  replace_all(&text, "LIMIT\n", either(kLimit, kAskPlace));
  replace_all(&text, "LEAVE\n", either(kLeave, kStamp));
  replace_all(&text, "LAST_PLACE", std::to_string(kBlockPlaces - 1));
  replace_all(&text, "STOPS_AT", std::to_string(kBlockStopsAt));
  replace_all(&text, "STAMP_SHIFT", std::to_string(kStampShift));
  replace_all(&text, "LAST_SM", std::to_string(kSmCounters - 1));
  replace_all(&text, "NUMBER", std::to_string(barrier));
  replace_all(&text, "BEGIN\n", more.begin);
  replace_all(&text, "KEEP\n", more.keep);
  replace_all(&text, "REDO\n", more.redo);
  return text;
}

std::string claimed_index_text(uint8_t reads, bool one_dimensional) {
  std::string text;
  if (one_dimensional) {
    if (reads & kReadsX) text += "mov.b32 %$x, %$ticket;\n";
    if (reads & kReadsY) text += "mov.b32 %$y, 0;\n";
    if (reads & kReadsZ) text += "mov.b32 %$z, 0;\n";
    return text;
  }
  if (reads & (kReadsX | kReadsY | kReadsZ))
    text += "div.u32 %$q, %$ticket, %$gx;\nmul.lo.u32 %$u, %$q, %$gx;\nsub.u32 %$x, %$ticket, %$u;\n";
  if (reads & (kReadsY | kReadsZ))
    text += "div.u32 %$z, %$q, %$gy;\nmul.lo.u32 %$u, %$z, %$gy;\nsub.u32 %$y, %$q, %$u;\n";
  return text;
}

std::string why_not_persistent(const ProgramFacts& facts, const Closure& closure) {
  if (std::string reason = why_not_cut(facts, closure); !reason.empty()) return reason;
  const std::pair version{facts.module.version_major, facts.module.version_minor};
  if (version < std::pair(6u, 0u) || architecture_of(facts.module) < 70) return "is made for GPUs older than sm_70";
  for (const uint32_t f : closure.functions)
    if (!facts.functions[f].one_block.empty()) return facts.functions[f].one_block;
  return "";
}

// The lowest number that no barrier of the code has; 16: none.
int free_barrier(const ProgramFacts& facts, const Closure& closure) {
  uint16_t used = 0;
  for (const uint32_t f : closure.functions) used |= facts.functions[f].barriers;
  int number = 0;
  while (number < 16 && used >> number & 1) ++number;
  return number;
}

// Threads that left the kernel go for the next block instead.
void turn_back(Block* block, const std::string& again, bool* copies) {
  for (Statement& statement : block->statements) {
    if (auto* inner = statement.as<Block>()) turn_back(inner, again, copies);
    auto* i = statement.as<Instruction>();
    if (!i) continue;
    *copies |= i->opcode == "cp" && i->has("async");
    if (i->opcode != "ret" && i->opcode != "exit") continue;
    i->opcode = "bra";
    i->modifiers.clear();
    i->operands = {{Symbol{again, 0, {}}}};
  }
}

}  // namespace

PersistentResult persistent(const Program& program, std::string_view kernel, const SlicingOptions& options) {
  const ProgramFacts& facts = program.facts();
  auto closed = close_over(facts, kernel);
  if (auto* refusal = std::get_if<Refusal>(&closed)) return std::move(*refusal);
  const Closure& closure = std::get<Closure>(closed);
  if (std::string reason = why_not_persistent(facts, closure); !reason.empty()) return Refusal{std::move(reason)};
  const Leaving leaving = leaves_apart(facts, closure);
  if (!leaving.reason.empty()) return Refusal{leaving.reason};
  const DropPlaces drops = options.flush == Flush::kNo ? DropPlaces{} : drop_places(facts, closure);
  if (!drops.refusal.empty()) return Refusal{drops.refusal};
  if (options.flush != Flush::kNo && options.limited) return Refusal{"is to drop blocks and to be limited at once"};
  if (options.told_apart && options.limited) return Refusal{"is to be told apart and to be limited at once"};
  const int number = free_barrier(facts, closure);
  if (number == 16) return Refusal{"uses all of its barriers"};
  Transplant moved(facts, closure);
  if (!moved.refusal().empty()) return Refusal{moved.refusal()};

  PersistentKernel made;
  made.counter_at = moved.add_parameter("counter", Type::kU64);
  made.stop_at = moved.add_parameter("stop", Type::kU64);
  made.blocks_at = moved.add_parameter("blocks", Type::kU32);
  made.grid_at = moved.add_parameter("grid_x", Type::kU32);
  moved.add_parameter("grid_y", Type::kU32);
  moved.add_parameter("grid_z", Type::kU32);
  if (options.flush != Flush::kNo) {
    made.redo_at = moved.add_parameter("redo", Type::kU64);
    made.redo_end_at = moved.add_parameter("redo_end", Type::kU32);
    made.redo_mask_at = moved.add_parameter("redo_mask", Type::kU32);
  }
  if (options.limited) {
    made.sm_counters_at = moved.add_parameter("sm_counters", Type::kU64);
    made.limit_at = moved.add_parameter("limit", Type::kU64);
  }
  if (options.told_apart) {
    made.places_at = moved.add_parameter("places", Type::kU64);
    made.first_place_at = moved.add_parameter("first_place", Type::kU32);
  }
  made.variables = moved.add_variables();
  made.parameter_bytes = moved.parameter_bytes();
  made.shared_bytes = kTicketBytes;
  made.whole_warps = leaving.whole_warps;
  made.name = moved.kernel().name;

  Block& body = *moved.kernel().body;
  if (options.flush != Flush::kNo)
    made.polls = insert_polls(moved, options.flush, options.told_apart, drops.at_barriers, &body);
  bool copies = false;
  turn_back(&body, moved.prefix() + "again", &copies);
  const uint8_t reads = moved.reads();
  const uint8_t sizes = options.one_dimensional ? 0 : kReadsSizeX | kReadsSizeY;
  std::string claim = claim_text(number, options);
  if (copies) claim.insert(claim.find("barrier.sync"), "cp.async.wait_all;\n  ");
  std::vector<Statement> entry =
      moved.statements(moved.entry_text() + grid_declarations(reads, 63) + grid_loads(reads | sizes) + claim +
                       claimed_index_text(reads, options.one_dimensional));
  auto& statements = body.statements;
  statements.insert(statements.begin(), std::make_move_iterator(entry.begin()), std::make_move_iterator(entry.end()));
  std::vector<Statement> back = moved.statements("bra $again;\n");
  statements.push_back(std::move(back.at(0)));
  made.text = moved.finish();
  if (!moved.refusal().empty()) return Refusal{moved.refusal()};
  return made;
}

}  // namespace bandsaw::ptx
