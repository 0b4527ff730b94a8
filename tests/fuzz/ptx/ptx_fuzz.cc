// PTX of a guest: any bytes end in a tree or a ParseError, and what parses prints to text that parses to the same.
// Seeds: tests/unit/ptx/samples/*.ptx. By hand: ptx_fuzz -max_len=40000 CORPUS tests/unit/ptx/samples
#include <algorithm>
#include <cstdlib>

#include "tests/fuzz/ptx/parse_input.h"
#include "vgpu-sched/ptx/initial_value.h"
#include "vgpu-sched/ptx/link.h"
#include "vgpu-sched/ptx/managed.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/scope.h"

namespace {

using namespace bandsaw::ptx;

// What is managed is placed somewhere; what comes out is still PTX.
void place(Module module) {
  try {
    Addresses addresses;
    for (const ManagedVariable& variable : managed_variables(module)) addresses[variable.name] = 0x200000000000;
    for (const PlacedVariable& placed : place_managed(&module, addresses)) {
      const uint64_t size = placed.declaration.bytes();
      const auto inside = [&](uint64_t offset, std::span<const std::byte> bytes) {
        if (offset > size || bytes.size() > size - offset) std::abort();
      };
      write_initial(placed.declaration, inside, [](uint64_t, uint32_t, const SymbolAddress&) {});
    }
  } catch (const ManagedError&) {
    return;
  } catch (const InitialError&) {
  }
  if (!(parse(print(module)) == module)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = parse_input(data, size);
  if (!input) return 0;
  const Module& module = *input;
  std::string text = print(module);
  Module again = parse(text);  // a ParseError here is a finding
  if (!(again == module) || print(again) != text) std::abort();
  for (Item& item : again.items) {  // two units with the same names: one yields
    if (auto* variable = std::get_if<Variable>(&item); variable && variable->linkage == Linkage::kVisible)
      variable->linkage = Linkage::kWeak;
    if (auto* function = std::get_if<Function>(&item); function && function->linkage == Linkage::kVisible)
      function->linkage = Linkage::kWeak;
  }
  try {
    Module linked = link({module, again});
    if (!(parse(print(linked)) == linked)) std::abort();
  } catch (const LinkError&) {
  }
  place(module);
  Scope globals(module);
  for (const Item& item : module.items)
    if (const auto* function = std::get_if<Function>(&item); function && function->body) {
      Scope scope(&globals, *function);
      walk(*function->body, [&](const Statement& statement) {
        const auto* instruction = statement.as<Instruction>();
        if (!instruction) return;
        call_parts(*instruction);
        scope.find(instruction->opcode);
      });
    }
  return 0;
}
