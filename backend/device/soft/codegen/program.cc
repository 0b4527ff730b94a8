// compile(): parse, flatten, generate, optimise, cache; and what a program tells about its kernels and variables.
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "backend/device/soft/codegen/cache.h"
#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/half.h"
#include "backend/device/soft/codegen/jit.h"
#include "backend/device/soft/codegen/variables.h"
#include "backend/device/soft/compile.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kRecursionLocalBytes = 4096;  // of one lane, for functions that call themselves

uint32_t align16(uint64_t v) { return static_cast<uint32_t>((v + 15) / 16 * 16); }

// What a kernel needs with everything that it calls.
struct Reach {
  std::set<const FlatFunction*> functions;
  uint32_t local_bytes = 0;
  bool recursive = false;
};

class CallGraph {
 public:
  explicit CallGraph(const FlatModule& module) : module_(module) {
    for (auto& f : module.functions) by_name_[f.source->name] = &f;
  }
  Reach reach(const FlatFunction& kernel) {
    Reach r;
    std::set<const FlatFunction*> stack;
    r.local_bytes = depth(&kernel, &r, &stack);
    if (r.recursive) r.local_bytes += kRecursionLocalBytes;
    return r;
  }

 private:
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
      if (f->indirect_calls) {
        for (auto& g : module_.functions)
          if (!g.source->entry) deepest = std::max(deepest, depth(&g, r, stack));
      }
      depth_[f] = deepest;
    }
    stack->erase(f);
    return align16(f->local_bytes) + deepest;
  }

  const FlatModule& module_;
  std::map<std::string, const FlatFunction*> by_name_;
  std::map<const FlatFunction*, uint32_t> depth_;
};

class CompiledProgram final : public Program {
 public:
  const std::vector<KernelCode>& kernels() const override { return kernels_; }
  const std::vector<Variable>& variables() const override { return variables_; }

  class LoadedProgram final : public Loaded {
   public:
    KernelEntry entry(const std::string& kernel) const override {
      return reinterpret_cast<KernelEntry>(object->find("k." + kernel));
    }
    uint64_t function_address(const std::string& name) const override {
      auto it = numbers.find(name);
      return it == numbers.end() ? 0 : kFunctionWindow + 16ull * it->second;
    }
    std::unique_ptr<LoadedObject> object;
    std::map<std::string, uint32_t> numbers;
  };

  uint64_t code_bytes() const override { return object_.size(); }

  std::unique_ptr<Loaded> load(const std::map<std::string, uint64_t>& addresses, std::string* error) override {
    std::map<std::string, uint64_t> symbols;
    for (auto& [name, address] : addresses) symbols["v." + name] = address;
    std::vector<std::string> wanted;
    for (auto& k : kernels_) wanted.push_back("k." + k.name);
    auto loaded = std::make_unique<LoadedProgram>();
    loaded->numbers = function_numbers_;
    loaded->object = load_object(object_, symbols, wanted, error);
    if (!loaded->object) return nullptr;
    return loaded;
  }

  std::vector<KernelCode> kernels_;
  std::vector<Variable> variables_;
  std::vector<char> object_;
  std::map<std::string, uint32_t> function_numbers_;
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

KernelCode describe(const FlatModule& module, CallGraph* graph, const FlatFunction& f) {
  KernelCode k;
  k.name = f.source->name;
  for (auto* p : f.parameters) {
    k.parameters.push_back({static_cast<__u32>(p->offset), static_cast<__u32>(p->bytes)});
    k.parameter_bytes = static_cast<uint32_t>(p->offset + p->bytes);
  }
  Reach r = graph->reach(f);
  k.local_bytes = r.local_bytes;
  k.registers = register_estimate(f);
  bool dynamic = false, fixed = false;
  for (auto* g : r.functions) {
    k.uses_barrier = k.uses_barrier || g->uses_barrier || spins(*g);
    k.uses_grid_sync = k.uses_grid_sync || g->uses_grid_sync;
    dynamic = dynamic || g->uses_dynamic_shared;
    fixed = fixed || g->uses_module_shared || (g != &f && g->shared_bytes);
    k.shared_align = std::max(k.shared_align, g->shared_align);
  }
  uint32_t base = fixed ? align16(module.fixed_shared_bytes) : 0;
  k.static_shared_bytes = f.shared_bytes || !fixed ? base + f.shared_bytes : module.fixed_shared_bytes;
  if (dynamic) k.static_shared_bytes = align16(k.static_shared_bytes);
  auto product = [](const ptx::Directive& d) {
    uint64_t n = 1;
    for (auto v : d.values) n *= std::min<uint64_t>(v, 1024);
    return static_cast<uint32_t>(std::min<uint64_t>(n, 1024));
  };
  for (auto name : {"maxntid", "reqntid"})
    if (auto* d = f.source->directive(name)) k.max_threads = product(*d);
  if (auto* d = f.source->directive("reqnctapercluster"))
    for (size_t i = 0; i < 3; ++i)
      k.required_cluster[i] = i < d->values.size() ? static_cast<uint32_t>(d->values[i]) : 1;
  return k;
}

std::vector<char> generate(FlatModule* flat, Target* target, const CompileOptions& options,
                           const std::map<std::string, uint32_t>& numbers, CallGraph* graph) {
  llvm::LLVMContext context;
  llvm::Module module("kernels", context);
  target->prepare(&module);
  ModuleContext m{&context, &module, flat, options.window_base, target->avx512(), numbers, false};
  for (auto& f : flat->functions) m.functions_may_exit = m.functions_may_exit || (!f.source->entry && f.uses_exit);
  for (auto& f : flat->functions) {
    uint32_t base = 0;
    if (f.source->entry) {
      for (auto* g : graph->reach(f).functions)
        if (g->uses_module_shared || (g != &f && g->shared_bytes)) base = align16(flat->fixed_shared_bytes);
    }
    Emitter(&m, f, base, align16(f.local_bytes)).run();
  }
  return target->emit(&module);
}

}  // namespace

std::unique_ptr<Program> compile(std::string_view ptx, const CompileOptions& options, std::string* log) {
  try {
    ptx::Module tree = ptx::parse(ptx);
    FlatModule flat = flatten(tree);
    place_function_shared(&flat);
    auto program = std::make_unique<CompiledProgram>();
    program->variables_ = module_variables(flat);
    uint32_t next = 0;
    for (auto& f : flat.functions)
      if (!f.source->entry) program->function_numbers_[f.source->name] = next++;
    CallGraph graph(flat);
    for (auto& f : flat.functions)
      if (f.source->entry) program->kernels_.push_back(describe(flat, &graph, f));
    Target target(options.cpu);
    std::string key, identity = build_identity();
    if (!options.cache_directory.empty() && !identity.empty()) {
      key = content_key({identity, target.identity(), std::to_string(options.window_base), ptx});
      program->object_ = cache_read(options.cache_directory, key);
    }
    if (program->object_.empty()) {
      program->object_ = generate(&flat, &target, options, program->function_numbers_, &graph);
      if (!key.empty()) cache_write(options.cache_directory, key, program->object_);
    }
    return program;
  } catch (const ptx::ParseError& e) {
    *log = "line " + std::to_string(e.line) + ": " + e.message;
  } catch (const std::exception& e) {
    *log = e.what();
  }
  return nullptr;
}

}  // namespace bandsaw::soft
