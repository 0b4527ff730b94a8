#include "vgpu-sched/ptx/slice.h"

#include <utility>

#include "vgpu-sched/ptx/count.h"
#include "vgpu-sched/ptx/leaving.h"
#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/spin.h"
#include "vgpu-sched/ptx/transplant.h"

namespace bandsaw::ptx {
namespace {

// The block's index from the first block's, carried from x to y to z as far as anybody reads it. Sums stay below 2^32:
// an index is below the grid's size, 2^31 - 1 at most.
std::string index_text(uint8_t reads, bool one_dimensional) {
  std::string text;
  if (reads & (kReadsX | kReadsY | kReadsZ)) text += "ld.param.b32 %$x, [$first_x];\nmov.u32 %$t, %ctaid.x;\n";
  if (one_dimensional) {
    if (reads & kReadsX) text += "add.u32 %$x, %$x, %$t;\n";
    if (reads & kReadsY) text += "mov.u32 %$y, 0;\n";
    if (reads & kReadsZ) text += "mov.u32 %$z, 0;\n";
    return text;
  }
  if (reads & (kReadsX | kReadsY | kReadsZ))
    text +=
        "add.u32 %$t, %$x, %$t;\nld.param.b32 %$gx, [$grid_x];\n"
        "div.u32 %$q, %$t, %$gx;\nmul.lo.u32 %$u, %$q, %$gx;\nsub.u32 %$x, %$t, %$u;\n";
  if (reads & (kReadsY | kReadsZ))
    text +=
        "ld.param.b32 %$y, [$first_y];\nadd.u32 %$t, %$y, %$q;\nld.param.b32 %$gy, [$grid_y];\n"
        "div.u32 %$q, %$t, %$gy;\nmul.lo.u32 %$u, %$q, %$gy;\nsub.u32 %$y, %$t, %$u;\n";
  if (reads & kReadsZ) text += "ld.param.b32 %$z, [$first_z];\nadd.u32 %$z, %$z, %$q;\n";
  return text;
}

}  // namespace

SlicingResult slice(const Program& program, std::string_view kernel, const SlicingOptions& options) {
  auto closed = close_over(program.facts(), kernel);
  if (auto* refusal = std::get_if<Refusal>(&closed)) return std::move(*refusal);
  const Closure& closure = std::get<Closure>(closed);
  if (std::string reason = why_not_cut(program.facts(), closure); !reason.empty()) return Refusal{std::move(reason)};
  std::string inside = options.counts ? leaves_inside(program.facts(), closure) : "";
  if (!inside.empty()) return Refusal{std::move(inside)};
  Transplant moved(program.facts(), closure);
  if (!moved.refusal().empty()) return Refusal{moved.refusal()};

  SlicedKernel sliced;
  sliced.first_at = moved.add_parameter("first_x", Type::kU32);
  moved.add_parameter("first_y", Type::kU32);
  moved.add_parameter("first_z", Type::kU32);
  sliced.grid_at = moved.add_parameter("grid_x", Type::kU32);
  moved.add_parameter("grid_y", Type::kU32);
  moved.add_parameter("grid_z", Type::kU32);
  if (options.counts) sliced.counts_at = add_counters(program.facts(), closure, &moved);
  sliced.variables = moved.add_variables();
  sliced.parameter_bytes = moved.parameter_bytes();
  sliced.name = moved.kernel().name;
  const uint8_t reads = moved.reads();
  const std::string text = moved.entry_text() + grid_declarations(reads, 63) + grid_loads(reads) +
                           index_text(reads, options.one_dimensional);
  std::vector<Statement> entry = moved.statements(text);
  auto& body = moved.kernel().body->statements;
  body.insert(body.begin(), std::make_move_iterator(entry.begin()), std::make_move_iterator(entry.end()));
  sliced.text = moved.finish();
  if (!moved.refusal().empty()) return Refusal{moved.refusal()};
  return sliced;
}

}  // namespace bandsaw::ptx
