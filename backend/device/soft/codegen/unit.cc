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
constexpr uint32_t kStackBytes = 16384;          // of one lane, for alloca
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
  // The function and what it calls by name, to any depth.
  std::set<const FlatFunction*> closure(const FlatFunction& function) const {
    std::set<const FlatFunction*> all;
    std::vector<const FlatFunction*> found{&function};
    while (!found.empty()) {
      const FlatFunction* const f = found.back();
      found.pop_back();
      if (!all.insert(f).second) continue;
      for (const std::string& name : f->callees)
        if (const auto it = by_name_.find(name); it != by_name_.end()) found.push_back(it->second);
    }
    return all;
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
  for (auto& r : f.registers)
    if (!r.inlined) words += (ptx::bits_of(r.type) + 31) / 32;
  return std::clamp(words / 3, 16u, 255u);
}

bool spins(const Analysis& a) {
  return std::any_of(a.order.begin(), a.order.end(), [&](int b) { return a.spins[b]; });
}

// What functions elsewhere may do that pointers name: anything.
void assume_the_worst(const FlatModule& module, KernelCode* k, bool* fixed, uint64_t* dynamic_align) {
  k->uses_barrier = k->uses_reserved_shared = true;
  *fixed = *fixed || module.fixed_shared_bytes;
  for (const auto& [name, place] : module.globals)
    if (place->dynamic_shared)
      *dynamic_align = std::max<uint64_t>({*dynamic_align, place->declaration->alignment(), 16});
}

KernelCode describe(const FlatModule& module, CallGraph* graph, const FlatFunction& f, bool elsewhere,
                    const Analyses& analysis) {
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
    k.uses_barrier = k.uses_barrier || g->uses_barrier || spins(analysis(*g));
    k.uses_grid_sync = k.uses_grid_sync || g->uses_grid_sync;
    k.uses_reserved_shared = k.uses_reserved_shared || g->uses_reserved_shared;
    if (g->uses_alloca) k.stack_bytes = kStackBytes;
    dynamic_align = std::max(dynamic_align, g->dynamic_align);
    fixed = fixed || g->uses_fixed_shared;
    k.shared_align = std::max(k.shared_align, g->shared_align);
  }
  if (k.stack_bytes) k.local_bytes = align16(k.local_bytes) + k.stack_bytes;
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

// One LLVM module, and what is known when something of a unit is put into it.
struct Generation {
  Generation(const UnitSource& source, const FlatModule& flat, const FlatFunction& root_function,
             const std::set<std::string>& apart, Target* target, Analyses analyses)
      : root(root_function), analysis(std::move(analyses)), reach(CallGraph(flat, source.parts).reach(root)) {
    const bool elsewhere = source.parts && reach.calls_pointers;
    target->prepare(&module);
    m = {&context,
         &module,
         &flat,
         source.options->window_base,
         target->avx2(),
         target->avx512(),
         *source.function_numbers,
         [outline = source.outline](const std::string& name) { return outline->kernel(name) != nullptr; },
         source.parts != nullptr,
         &apart,
         elsewhere};
    bool others = elsewhere;  // have shared memory, which lies in front of the root's own
    for (auto* f : reach.functions) {
      m.functions_may_exit = m.functions_may_exit || (!f->source->entry && f->uses_exit);
      others = others || f->uses_fixed_shared;
    }
    if (others && root.source->entry) root_shared = static_cast<uint32_t>(shared_behind(flat.fixed_shared_bytes, root));
  }
  Emitter emitter(const FlatFunction& f) {
    return Emitter(&m, f, analysis(f), &f == &root ? root_shared : 0, align16(f.local_bytes));
  }
  // What the code so far calls in this object, and what that calls.
  void add_called() {
    for (bool more = true; more;) {
      more = false;
      for (const FlatFunction& f : m.flat->functions) {
        const llvm::Function* const called = module.getFunction("f." + f.source->name);
        if (!called || !called->isDeclaration()) continue;
        emitter(f).run();
        more = true;
      }
    }
  }

  const FlatFunction& root;
  const Analyses analysis;
  const Reach reach;
  llvm::LLVMContext context;
  llvm::Module module{"kernels", context};
  ModuleContext m;
  uint32_t root_shared = 0;  // where a kernel's own begins
};

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

// What of the reach is long and compiled apart. Shared variables lie elsewhere for each kernel; a pointer may mean any
// function; code that records has one object.
std::set<std::string> functions_apart(const UnitSource& source, const CallGraph& graph, const Reach& reach,
                                      const FlatFunction* root) {
  std::set<std::string> apart;
  if (source.options->record || (reach.calls_pointers && !source.parts)) return apart;
  for (const FlatFunction* const f : reach.functions) {
    if (f->source->entry || f == root || f->instructions() <= source.options->function_at_once) continue;
    const std::set<const FlatFunction*> all = graph.closure(*f);
    const bool may = std::none_of(all.begin(), all.end(), [](const FlatFunction* g) {
      return g->shared_bytes || !g->module_shared.empty() || g->indirect_calls;
    });
    if (may) apart.insert(f->source->name);
  }
  return apart;
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
  for (auto& f : flat_.functions)
    if (f.source->name == root.name) root_ = &f;
  if (!root_) throw CompileError(root.line, root.name + ": no kernel or function");
  CallGraph graph(flat_, source_.parts);
  const Reach reach = graph.reach(*root_);
  if (source_.parts && (reach.calls_pointers || !root_->source->entry)) {
    place_as_all_parts();
  } else {
    place_shared(&flat_, reach.functions);
  }
  apart_ = functions_apart(source_, graph, reach, root_);
}

// Functions that pointers name are compiled apart, and have the same places for all kernels.
void Unit::place_as_all_parts() {
  for (auto& f : flat_.functions) {
    f.uses_fixed_shared = !f.module_shared.empty();
    if (!f.source->entry && f.shared_bytes) move_shared(&f, source_.parts->shared_base(f.source->name));
  }
  flat_.fixed_shared_bytes = source_.parts->fixed_shared_bytes();
}

KernelCode Unit::description() const {
  CallGraph graph(flat_, source_.parts);
  for (auto* f : graph.reach(*root_).functions) Emitter::check(*f);
  return describe(flat_, &graph, *root_, source_.parts != nullptr, analyses());
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

const Analysis& Unit::analysis(const FlatFunction& function) const {
  std::lock_guard lock(mutex_);
  const auto found = analyses_.find(&function);
  return found != analyses_.end() ? found->second : analyses_.emplace(&function, analyse(function)).first->second;
}

Analyses Unit::analyses() const {
  return [this](const FlatFunction& f) -> const Analysis& { return analysis(f); };
}

const Pieces* Unit::pieces() const {
  if (!root_->source->entry) return nullptr;
  const Analysis& analysis = this->analysis(*root_);
  size_t instructions = 0;
  for (const int block : analysis.order) instructions += root_->blocks[static_cast<size_t>(block)].ops.size();
  const bool parts = std::any_of(analysis.regions.begin(), analysis.regions.end(), [&](const Region& region) {
    return region.blocks.size() > source_.options->region_at_once;
  });
  if (instructions <= (parts ? source_.options->parting_at_once : source_.options->kernel_at_once)) return nullptr;
  std::lock_guard lock(mutex_);
  if (!pieces_) pieces_.emplace(*root_, analysis, source_.options->piece);
  return &*pieces_;
}

std::vector<char> Unit::generate(Target* target, bool record) const {
  Generation to(source_, flat_, *root_, apart_, target, analyses());
  CodeLayout places;
  if (record && root_->source->entry) places = layout(to.reach.functions);
  if (!places.empty() && places.fits()) to.m.layout = &places;
  if (const Pieces* const pieces = to.m.layout ? nullptr : this->pieces()) {
    to.emitter(*root_).run_entry_of(*pieces);
    return target->emit(&to.module);
  }
  to.emitter(*root_).run();
  to.add_called();
  if (!root_->source->entry) export_function(&to.module, root_->source->name);
  return target->emit(&to.module);
}

std::vector<char> Unit::generate_piece(Target* target, uint32_t piece) const {
  const Pieces* const pieces = this->pieces();
  if (!pieces || piece >= pieces->count()) throw CompileError(root_->source->place.line, "no such piece");
  Generation to(source_, flat_, *root_, apart_, target, analyses());
  to.emitter(*root_).run_piece(*pieces, piece);
  to.add_called();
  return target->emit(&to.module);
}

}  // namespace bandsaw::soft
