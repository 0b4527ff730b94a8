#include "backend/device/soft/codegen/variables.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/device/soft/codegen/half.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kLargestInitial = 1ull << 30;

class Filler {
 public:
  Filler(const ptx::Variable& declaration, Variable* variable) : d_(declaration), v_(variable) {
    element_ = std::max(1u, ptx::bits_of(d_.type) / 8);
  }
  void run() {
    if (v_->bytes > kLargestInitial) throw CompileError(d_.place.line, d_.name + ": initial value too large");
    v_->initial.assign(v_->bytes, std::byte{0});
    // Vector elements count as one more dimension.
    std::vector<uint64_t> strides;
    uint64_t stride = element_;
    if (d_.vector > 1) { strides.push_back(stride); stride *= d_.vector; }
    for (size_t i = d_.dimensions.size(); i-- > 0;) {
      strides.push_back(stride);
      if (d_.dimensions[i]) stride *= *d_.dimensions[i];
    }
    std::reverse(strides.begin(), strides.end());
    fill(*d_.initial, 0, strides, 0);
  }

 private:
  void fill(const ptx::Initializer& init, uint64_t offset, const std::vector<uint64_t>& strides, size_t depth) {
    if (auto* list = std::get_if<ptx::InitializerList>(&init.value)) {
      uint64_t step = depth < strides.size() ? strides[depth] : element_;
      for (size_t i = 0; i < list->elements.size(); ++i) fill(list->elements[i], offset + i * step, strides, depth + 1);
      return;
    }
    if (offset + element_ > v_->bytes) throw CompileError(d_.place.line, d_.name + ": more initial values than elements");
    if (auto* number = std::get_if<ptx::Integer>(&init.value)) {
      put(offset, ptx::is_float(d_.type) ? float_bits(static_cast<double>(number->value())) : number->bits);
    } else if (auto* f = std::get_if<ptx::Float>(&init.value)) {
      put(offset, float_bits(f->value(), f));
    } else if (auto* s = std::get_if<ptx::SymbolAddress>(&init.value)) {
      if (s->mask || element_ != 8) throw CompileError(d_.place.line, d_.name + ": part of an address in an initial value is not supported");
      v_->pointers.push_back({offset, s->name, s->offset, s->generic});
    }
  }
  uint64_t float_bits(double value, const ptx::Float* exact = nullptr) {
    switch (d_.type) {
      case ptx::Type::kF64: return std::bit_cast<uint64_t>(value);
      case ptx::Type::kF16: return to_f16(value);
      case ptx::Type::kBf16: return to_bf16(value);
      default:
        if (exact && !exact->is_double) return exact->bits;
        if (ptx::bits_of(d_.type) == 64) return exact ? exact->bits : std::bit_cast<uint64_t>(value);
        return std::bit_cast<uint32_t>(static_cast<float>(value));
    }
  }
  void put(uint64_t offset, uint64_t bits) { std::memcpy(v_->initial.data() + offset, &bits, std::min<uint64_t>(8, element_)); }

  const ptx::Variable& d_;
  Variable* v_;
  uint64_t element_;
};

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
    v.constant = p->space == ptx::Space::kConst;
    v.managed = std::any_of(d.attributes.begin(), d.attributes.end(), [](auto& a) { return a.name == "managed"; });
    if (d.initial) Filler(d, &v).run();
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
