#include "backend/device/soft/codegen/variables.h"

#include <algorithm>
#include <span>

#include "backend/device/soft/sm_limits.h"
#include "vgpu-sched/ptx/initial_value.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kLargestShared = 16 << 20;  // of all functions together

// Elements mostly follow one another. What the text does not name takes no room, however large the variable is.
void add(uint64_t offset, std::span<const std::byte> bytes, std::vector<Variable::Piece>* pieces) {
  constexpr uint64_t kGap = 32;  // zeros that take less room than another piece
  Variable::Piece* last = pieces->empty() ? nullptr : &pieces->back();
  const uint64_t end = last ? last->offset + last->bytes.size() : 0;
  if (!last || offset < end || offset - end > kGap) {
    pieces->push_back({offset, {}});
    last = &pieces->back();
  }
  last->bytes.resize(offset - last->offset);
  last->bytes.insert(last->bytes.end(), bytes.begin(), bytes.end());
}

void fill(const ptx::Variable& declaration, Variable* variable) {
  const auto fail = [&](const std::string& why) { throw CompileError(declaration.place.line, why); };
  try {
    ptx::write_initial(
        declaration, [&](uint64_t offset, std::span<const std::byte> bytes) { add(offset, bytes, &variable->initial); },
        [&](uint64_t offset, uint32_t bytes, const ptx::SymbolAddress& address) {
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

void move_shared(FlatFunction* function, uint64_t base) {
  for (Place* p : function->places)
    if (p->space == ptx::Space::kShared && !p->dynamic_shared) p->offset += base;
  function->uses_fixed_shared = true;
}

void place_shared(FlatModule* module, const std::set<const FlatFunction*>& functions) {
  uint64_t end = 0;
  for (const auto& place : module->places) {
    const auto names = [&](const FlatFunction* f) { return f->module_shared.contains(place.get()); };
    if (std::none_of(functions.begin(), functions.end(), names)) continue;
    const uint64_t align = std::max<uint64_t>(place->declaration->alignment(), 1);
    place->offset = (end + align - 1) / align * align;
    end = place->offset + place->bytes;  // no more than all took that were placed before
  }
  for (auto& f : module->functions) {
    f.uses_fixed_shared = !f.module_shared.empty();
    if (f.source->entry || !f.shared_bytes || !functions.contains(&f)) continue;
    const uint64_t base = shared_behind(end, f);
    if (base + f.shared_bytes > kLargestShared)
      throw CompileError(f.source->place.line, f.source->name + ": its .shared variables are too large");
    move_shared(&f, base);
    end = base + f.shared_bytes;
  }
  module->fixed_shared_bytes = static_cast<uint32_t>(end);
}

void check_shared_bytes(const std::string& kernel, uint32_t line, uint64_t bytes) {
  if (bytes <= kDefaultBlockShared) return;
  throw CompileError(line, kernel + ": uses too much shared data (" + std::to_string(bytes) + " bytes, of " +
                               std::to_string(kDefaultBlockShared) + " that static variables may take)");
}

void check_shared(const ptx::Function& kernel, uint32_t first_line) {
  uint64_t bytes = 0;
  const auto add = [&](const ptx::Block& block, const auto& again) -> void {
    for (const ptx::Statement& statement : block.statements) {
      if (const auto* inner = statement.as<ptx::Block>()) again(*inner, again);
      const auto* variable = statement.as<ptx::Variable>();
      if (!variable || variable->space != ptx::Space::kShared || variable->sized_by_launch()) continue;
      check_shared_bytes(kernel.name, statement.place.line + first_line, variable->bytes());  // sums do not wrap
      bytes += variable->bytes();
    }
  };
  add(*kernel.body, add);
  check_shared_bytes(kernel.name, kernel.place.line + first_line, bytes);
}

}  // namespace bandsaw::soft
