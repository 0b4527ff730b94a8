// PTX of a guest, rewritten: any module ends in refusals or in text that parses, and nothing takes for ever.
// Seeds: tests/unit/ptx/samples/*.ptx. By hand: rewrite_fuzz -max_len=40000 -timeout=5 CORPUS tests/unit/ptx/samples
#include <cstdlib>

#include "tests/fuzz/ptx/parse_input.h"
#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/pointers.h"
#include "vgpu-sched/ptx/slice.h"

namespace {

using namespace bandsaw::ptx;

// What was made is PTX with the kernel in it, whose own parameters come first.
template <class Made, class Result>
void check(const Result& result, std::string_view kernel) {
  const auto* made = std::get_if<Made>(&result);
  if (!made) {
    if (std::get<Refusal>(result).reason.empty()) std::abort();
    return;
  }
  const Module module = parse(made->text);  // a ParseError here is a finding
  const Function* function = module.function(made->name);
  if (!function || !function->entry || !function->body || made->name != kernel) std::abort();
  if (made->grid_at + 12 > made->parameter_bytes || made->parameter_bytes > 32764) std::abort();
  for (const BorrowedVariable& variable : made->variables)
    if (variable.at % 8 != 0 || variable.at + 8 > made->parameter_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto input = parse_input(data, size);
  if (!input) return 0;
  const Program program(std::move(*input));
  for (const std::string_view kernel : program.kernels()) {
    check<SlicedKernel>(slice(program, kernel), kernel);
    check<SlicedKernel>(slice(program, kernel, {true}), kernel);
    check<SlicedKernel>(slice(program, kernel, {.counts = true}), kernel);
    check<PersistentKernel>(persistent(program, kernel), kernel);
    const Analysis analysis = analyse(program, kernel);
    for (const auto& pointer : pointer_parameters(program, kernel).pointers)
      if (pointer.at > UINT32_MAX) std::abort();
    if (analysis.name != kernel || !(analysis.instruction_mix.total() >= 0)) std::abort();
  }
  return 0;
}
