#include "backend/device/soft/codegen/variables.h"

#include <algorithm>

#include "vgpu-sched/ptx/initial_value.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kLargestInitial = 1ull << 30;

void fill(const ptx::Variable& declaration, Variable* variable) {
  const auto fail = [&](const std::string& why) { throw CompileError(declaration.place.line, why); };
  if (variable->bytes > kLargestInitial) fail(declaration.name + ": initial value too large");
  variable->initial.assign(variable->bytes, std::byte{0});
  try {
    ptx::write_initial(
        declaration, variable->initial, [&](uint64_t offset, uint32_t bytes, const ptx::SymbolAddress& address) {
          variable->pointers.push_back(
              {offset, address.name, address.offset, address.generic, bytes, address.mask.value_or(~uint64_t{0})});
        });
  } catch (const ptx::InitialError& error) {
    fail(error.what());
  }
}

}  // namespace

std::vector<Variable> module_variables(const FlatModule& module) {
  std::vector<Variable> variables;
  auto add = [&](const Place* p) {
    const ptx::Variable& d = *p->declaration;
    if (p->space != ptx::Space::kGlobal && p->space != ptx::Space::kConst) return;
    if (p->extern_symbol) return;
    Variable v;
    v.name = p->name;
    v.bytes = p->bytes;
    v.align = d.alignment();
    if (d.type == ptx::Type::kTexref) v.reference = Variable::Reference::kTexture;
    if (d.type == ptx::Type::kSurfref) v.reference = Variable::Reference::kSurface;
    v.constant = p->space == ptx::Space::kConst;
    v.managed = std::any_of(d.attributes.begin(), d.attributes.end(), [](auto& a) { return a.name == "managed"; });
    if (d.initial) fill(d, &v);
    variables.push_back(std::move(v));
  };
  for (auto& p : module.places) add(p.get());
  return variables;
}

void place_function_shared(FlatModule* module) {
  for (auto& f : module->functions) {
    if (f.source->entry || !f.shared_bytes) continue;
    uint64_t base = (module->fixed_shared_bytes + 15) / 16 * 16;
    for (Place* p : f.places)
      if (p->space == ptx::Space::kShared && !p->dynamic_shared) p->offset += base;
    module->fixed_shared_bytes = static_cast<uint32_t>(base + f.shared_bytes);
    f.uses_module_shared = true;
  }
}

}  // namespace bandsaw::soft
