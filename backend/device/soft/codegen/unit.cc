#include "backend/device/soft/codegen/unit.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <set>

#include "backend/device/soft/codegen/variables.h"
#include "backend/device/soft/sm_limits.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kRecursionLocalBytes = 4096;  // of one lane, for functions that call themselves
constexpr uint64_t kLargestLocal = 512 << 10;    // CUDA\'s limit, of one thread

uint32_t align16(uint64_t v) { return static_cast<uint32_t>((v + 15) / 16 * 16); }

// What a kernel needs with everything that it calls.
struct Reach {
  std::set<const FlatFunction*> functions;
  uint32_t local_bytes = 0;
  bool recursive = false;
  bool calls_pointers = false;
};

class CallGraph {
 public:
  // `parts`: those of a large module, where functions that pointers name are elsewhere.
  CallGraph(const FlatModule& module, const Parts* parts) : module_(module), parts_(parts) {
    for (auto& f : module.functions) by_name_[f.source->name] = &f;
  }
  Reach reach(const FlatFunction& kernel) {
    Reach r;
    std::set<const FlatFunction*> stack;
    r.local_bytes = depth(&kernel, &r, &stack);
    for (const FlatFunction* f : r.functions) r.calls_pointers = r.calls_pointers || f->indirect_calls;
    if (parts_ && r.calls_pointers) {
      r.local_bytes += parts_->local_bytes_behind_pointers();
      r.recursive = r.recursive || parts_->pointers_call_pointers();
    }
    if (r.recursive) r.local_bytes += kRecursionLocalBytes;
    if (r.local_bytes > kLargestLocal) {
      throw CompileError(kernel.source->place.line, kernel.source->name + ": more local memory than a thread has: " +
                                                        std::to_string(r.local_bytes) + " of " +
                                                        std::to_string(kLargestLocal) + " bytes");
    }
    return r;
  }

 private:
  static constexpr uint32_t kTooDeep = 1 << 30;  // far over the limit: sums stay below 32 bits

  uint32_t depth(const FlatFunction* f, Reach* r, std::set<const FlatFunction*>* stack) {
    if (!stack->insert(f).second) {
      r->recursive = true;
      return 0;
    }
    bool known = !r->functions.insert(f).second;
    uint32_t deepest = 0;
    if (known && depth_.contains(f)) {
      deepest = depth_[f];
    } else {
      for (auto& name : f->callees)
        if (auto it = by_name_.find(name); it != by_name_.end())
          deepest = std::max(deepest, depth(it->second, r, stack));
      if (f->indirect_calls && !parts_) {
        for (auto& g : module_.functions)
          if (!g.source->entry) deepest = std::max(deepest, depth(&g, r, stack));
      }
      depth_[f] = deepest;
    }
    stack->erase(f);
    return std::min<uint32_t>(align16(f->local_bytes) + deepest, kTooDeep);
  }

  const FlatModule& module_;
  const Parts* const parts_;
  std::map<std::string, const FlatFunction*> by_name_;
  std::map<const FlatFunction*, uint32_t> depth_;
};

uint32_t register_estimate(const FlatFunction& f) {
  uint32_t words = 0;
  for (auto& r : f.registers) words += (ptx::bits_of(r.type) + 31) / 32;
  return std::clamp(words / 3, 16u, 255u);
}

bool spins(const FlatFunction& f) {
  Analysis a = analyse(f);
  return std::any_of(a.order.begin(), a.order.end(), [&](int b) { return a.spins[b]; });
}

// What functions elsewhere may do that pointers name: anything.
void assume_the_worst(const FlatModule& module, KernelCode* k, bool* fixed, uint64_t* dynamic_align) {
  k->uses_barrier = true;
  *fixed = *fixed || module.fixed_shared_bytes;
  for (const auto& [name, place] : module.globals)
    if (place->dynamic_shared)
      *dynamic_align = std::max<uint64_t>({*dynamic_align, place->declaration->alignment(), 16});
}

KernelCode describe(const FlatModule& module, CallGraph* graph, const FlatFunction& f, bool elsewhere) {
  KernelCode k;
  k.name = f.source->name;
  for (auto* p : f.parameters) {
    k.parameters.push_back({static_cast<__u32>(p->offset), static_cast<__u32>(p->bytes)});
    k.parameter_bytes = static_cast<uint32_t>(p->offset + p->bytes);
  }
  Reach r = graph->reach(f);
  k.local_bytes = r.local_bytes;
  k.registers = register_estimate(f);
  bool fixed = false;
  uint64_t dynamic_align = 1;
  for (auto* g : r.functions) {
    k.uses_barrier = k.uses_barrier || g->uses_barrier || spins(*g);
    k.uses_grid_sync = k.uses_grid_sync || g->uses_grid_sync;
    dynamic_align = std::max(dynamic_align, g->dynamic_align);
    fixed = fixed || g->uses_module_shared || (g != &f && g->shared_bytes);
    k.shared_align = std::max(k.shared_align, g->shared_align);
  }
  if (elsewhere && r.calls_pointers) assume_the_worst(module, &k, &fixed, &dynamic_align);
  const uint32_t base = fixed ? static_cast<uint32_t>(shared_behind(module.fixed_shared_bytes, f)) : 0;
  k.static_shared_bytes = f.shared_bytes || !fixed ? base + f.shared_bytes : module.fixed_shared_bytes;
  // Dynamic shared memory follows, aligned as its declaration wants it.
  constexpr uint64_t kAlignMost = 64 << 10;
  dynamic_align = std::min(dynamic_align, kAlignMost);
  k.static_shared_bytes =
      static_cast<uint32_t>((k.static_shared_bytes + dynamic_align - 1) / dynamic_align * dynamic_align);
  auto product = [](const ptx::Directive& d) {
    uint64_t n = 1;
    for (auto v : d.values) n *= std::min<uint64_t>(v, 1024);
    return static_cast<uint32_t>(std::min<uint64_t>(n, 1024));
  };
  for (auto name : {"maxntid", "reqntid"})
    if (auto* d = f.source->directive(name)) k.max_threads = product(*d);
  const auto number = [&](const char* name, uint64_t least, uint64_t most, uint32_t* to) {
    const auto* d = f.source->directive(name);
    if (d && !d->values.empty()) *to = static_cast<uint32_t>(std::clamp<uint64_t>(d->values[0], least, most));
  };
  number("minnctapersm", 1, kSmBlocks, &k.least_blocks);
  number("maxnreg", 16, 255, &k.most_registers);
  check_shared_bytes(k.name, f.source->place.line, f.shared_bytes);
  if (auto* d = f.source->directive("reqnctapercluster"))
    for (size_t i = 0; i < 3; ++i)
      k.required_cluster[i] = i < d->values.size() ? static_cast<uint32_t>(d->values[i]) : 1;
  return k;
}

// What other objects call: functions are internal to theirs.
void export_function(llvm::Module* module, const std::string& name) {
  llvm::Function* const inner = module->getFunction("f." + name);
  auto* const outer =
      llvm::Function::Create(inner->getFunctionType(), llvm::GlobalValue::ExternalLinkage, "u." + name, *module);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(module->getContext(), "entry", outer));
  std::vector<llvm::Value*> arguments;
  for (auto& argument : outer->args()) arguments.push_back(&argument);
  b.CreateCall(inner, arguments);
  b.CreateRetVoid();
}

}  // namespace

std::string UnitSource::text(const ptx::Outline::Definition& root, bool keep_lines) const {
  return parts ? outline->part(parts->closure(root), keep_lines) : outline->unit(root, keep_lines);
}

std::string Unit::symbol(const ptx::Outline& outline, const std::string& name) {
  return (outline.kernel(name) ? "k." : "u.") + name;
}

Unit::Unit(const UnitSource& source, const ptx::Outline::Definition& root)
    : source_(source), tree_(parsed(source.text(root, true))), flat_(flatten(tree_)) {
  place_shared();
  for (auto& f : flat_.functions)
    if (f.source->name == root.name) root_ = &f;
  if (!root_) throw CompileError(root.line, root.name + ": no kernel or function");
}

void Unit::place_shared() {
  if (!source_.parts) return place_function_shared(&flat_);
  for (auto& f : flat_.functions) {
    if (f.source->entry || !f.shared_bytes) continue;
    for (Place* p : f.places)
      if (p->space == ptx::Space::kShared && !p->dynamic_shared)
        p->offset += source_.parts->shared_base(f.source->name);
    f.uses_module_shared = true;
  }
  flat_.fixed_shared_bytes = source_.parts->fixed_shared_bytes();
}

KernelCode Unit::description() {
  CallGraph graph(flat_, source_.parts);
  for (auto* f : graph.reach(*root_).functions) Emitter::check(*f);
  return describe(flat_, &graph, *root_, source_.parts != nullptr);
}

CodeLayout Unit::layout(const std::set<const FlatFunction*>& functions) const {
  CodeLayout made;
  made.add(*root_);
  for (auto& f : flat_.functions)
    if (&f != root_ && functions.contains(&f)) made.add(f);
  return made;
}

timing::Code Unit::timing_code() {
  CallGraph graph(flat_, source_.parts);
  const CodeLayout places = layout(graph.reach(*root_).functions);
  return places.fits() ? places.code() : timing::Code();
}

std::vector<char> Unit::generate(Target* target, bool record) {
  CallGraph graph(flat_, source_.parts);
  const Reach reach = graph.reach(*root_);
  const bool elsewhere = source_.parts && reach.calls_pointers;
  llvm::LLVMContext context;
  llvm::Module module("kernels", context);
  target->prepare(&module);
  ModuleContext m{&context,
                  &module,
                  &flat_,
                  source_.window_base,
                  target->avx512(),
                  *source_.function_numbers,
                  [&](const std::string& name) { return source_.outline->kernel(name) != nullptr; },
                  source_.parts != nullptr,
                  elsewhere};
  bool others = elsewhere;  // have shared memory, which lies in front of its own
  CodeLayout places;
  if (record && root_->source->entry) places = layout(reach.functions);
  if (!places.empty() && places.fits()) m.layout = &places;
  for (auto* f : reach.functions) {
    m.functions_may_exit = m.functions_may_exit || (!f->source->entry && f->uses_exit);
    others = others || f->uses_module_shared || (f != root_ && f->shared_bytes);
  }
  const uint32_t base = others ? static_cast<uint32_t>(shared_behind(flat_.fixed_shared_bytes, *root_)) : 0;
  for (auto& f : flat_.functions) {  // in their order: the same code every time
    const bool kernel = &f == root_ && f.source->entry;
    if (reach.functions.contains(&f)) Emitter(&m, f, kernel ? base : 0, align16(f.local_bytes)).run();
  }
  if (!root_->source->entry) export_function(&module, root_->source->name);
  return target->emit(&module);
}

}  // namespace bandsaw::soft
