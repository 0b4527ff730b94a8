// compile(): what a program tells about its kernels and variables; each kernel is parsed, flattened, generated,
// optimised and cached by itself when it is asked for.
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "backend/device/soft/codegen/cache.h"
#include "backend/device/soft/codegen/device_runtime.h"
#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/half.h"
#include "backend/device/soft/codegen/jit.h"
#include "backend/device/soft/codegen/variables.h"
#include "backend/device/soft/compile.h"
#include "vgpu-sched/ptx/outline.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kRecursionLocalBytes = 4096;  // of one lane, for functions that call themselves

constexpr uint64_t kLargestLocal = 512 << 10;  // CUDA's limit, of one thread

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
      if (f->indirect_calls) {
        for (auto& g : module_.functions)
          if (!g.source->entry) deepest = std::max(deepest, depth(&g, r, stack));
      }
      depth_[f] = deepest;
    }
    stack->erase(f);
    return std::min<uint32_t>(align16(f->local_bytes) + deepest, kTooDeep);
  }

  const FlatModule& module_;
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
  bool fixed = false;
  uint64_t dynamic_align = 1;
  for (auto* g : r.functions) {
    k.uses_barrier = k.uses_barrier || g->uses_barrier || spins(*g);
    k.uses_grid_sync = k.uses_grid_sync || g->uses_grid_sync;
    dynamic_align = std::max(dynamic_align, g->dynamic_align);
    fixed = fixed || g->uses_module_shared || (g != &f && g->shared_bytes);
    k.shared_align = std::max(k.shared_align, g->shared_align);
  }
  uint32_t base = fixed ? align16(module.fixed_shared_bytes) : 0;
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
  if (auto* d = f.source->directive("reqnctapercluster"))
    for (size_t i = 0; i < 3; ++i)
      k.required_cluster[i] = i < d->values.size() ? static_cast<uint32_t>(d->values[i]) : 1;
  return k;
}

// One kernel with what it calls, read from its part of the module's text.
class Unit {
 public:
  // Throws ParseError or CompileError.
  Unit(const ptx::Outline& outline, const ptx::Outline::Kernel& kernel)
      : tree_(ptx::parse(outline.unit(kernel, true))), flat_(flatten(tree_)) {
    place_function_shared(&flat_);
    for (auto& f : flat_.functions)
      if (f.source->entry) kernel_ = &f;
    if (!kernel_) throw CompileError(kernel.line, kernel.name + ": no kernel");
  }

  KernelCode description() {
    CallGraph graph(flat_);
    for (auto* f : graph.reach(*kernel_).functions) Emitter::check(*f);
    return describe(flat_, &graph, *kernel_);
  }

  std::vector<char> generate(Target* target, uint64_t window_base, const std::map<std::string, uint32_t>& numbers,
                             const ptx::Outline& outline) {
    CallGraph graph(flat_);
    const Reach reach = graph.reach(*kernel_);
    llvm::LLVMContext context;
    llvm::Module module("kernels", context);
    target->prepare(&module);
    ModuleContext m{&context,
                    &module,
                    &flat_,
                    window_base,
                    target->avx512(),
                    numbers,
                    [&](const std::string& name) { return outline.kernel(name) != nullptr; },
                    false};
    uint32_t base = 0;
    for (auto* f : reach.functions) {
      m.functions_may_exit = m.functions_may_exit || (!f->source->entry && f->uses_exit);
      if (f->uses_module_shared || (f != kernel_ && f->shared_bytes)) base = align16(flat_.fixed_shared_bytes);
    }
    for (auto& f : flat_.functions) {  // in their order: the same code every time
      if (reach.functions.contains(&f)) Emitter(&m, f, &f == kernel_ ? base : 0, align16(f.local_bytes)).run();
    }
    return target->emit(&module);
  }

 private:
  const ptx::Module tree_;
  FlatModule flat_;
  const FlatFunction* kernel_ = nullptr;
};

// Calls `what` and puts the reason into `log` if it throws.
template <class F>
bool attempt(std::string* log, F&& what) {
  try {
    what();
    return true;
  } catch (const ptx::ParseError& e) {
    *log = "line " + std::to_string(e.line) + ": " + e.message;
  } catch (const std::exception& e) {
    *log = e.what();
  }
  return false;
}

class CompiledProgram final : public Program {
 public:
  // Throws ParseError or CompileError.
  CompiledProgram(std::string_view text, const CompileOptions& options)
      : outline_(with_device_runtime(std::string(text))), options_(options) {
    const ptx::Module tree = ptx::parse(outline_.declarations());
    for (const auto& kernel : outline_.kernels()) {
      uint32_t first_line = 0;
      const ptx::Function alone = outline_.alone(kernel, &first_line);
      check_words(*alone.body, first_line);
    }
    FlatModule flat = flatten(tree);
    variables_ = module_variables(flat);
    uint32_t next = 0;
    for (auto& f : flat.functions) function_numbers_[f.source->name] = next++;
    for (const auto& kernel : outline_.kernels()) {  // behind functions: what kernels are there moves none of those
      kernel_numbers_.emplace(kernel.name, next++);
      numbered_kernels_.push_back(kernel.name);
    }
  }

  std::vector<std::string> kernel_names() const override {
    std::vector<std::string> names;
    for (const auto& kernel : outline_.kernels()) names.push_back(kernel.name);
    return names;
  }
  const std::vector<Variable>& variables() const override { return variables_; }
  uint64_t code_bytes() const override { return outline_.text().size(); }

  const KernelCode* kernel(const std::string& name, std::string* log) override {
    Kernel* known = find(name);
    if (!known) return nullptr;
    std::lock_guard lock(known->mutex);
    if (!known->code && known->log.empty())
      attempt(&known->log, [&] { known->code = Unit(outline_, *known->source).description(); });
    if (known->code) return &*known->code;
    *log = known->log;
    return nullptr;
  }

  // The kernel's object code, from the cache on disk if it is there. Empty: `log` says why. One thread at a time makes
  // it.
  std::vector<char> object(const std::string& name, std::string* log) {
    Kernel* known = find(name);
    if (!known) return {};
    std::lock_guard lock(known->making);
    if (known->object.empty()) attempt(log, [&] { known->object = make(*known->source); });
    return known->object;
  }

  class LoadedProgram final : public Loaded {
   public:
    KernelEntry entry(const std::string& kernel, std::string* log) override {
      std::lock_guard lock(mutex_of(kernel));
      {
        std::lock_guard found_lock(mutex_);
        if (const auto found = entries_.find(kernel); found != entries_.end()) return found->second;
      }
      const std::vector<char> object = program->object(kernel, log);
      if (object.empty()) return nullptr;
      const auto entry = reinterpret_cast<KernelEntry>(space->add(object, "k." + kernel, log));
      std::lock_guard found_lock(mutex_);
      if (entry) entries_[kernel] = entry;
      return entry;
    }
    uint64_t function_address(const std::string& name) const override { return program->function_address(name); }
    std::string kernel_at(uint64_t address) const override {
      const uint64_t number = (address - kFunctionWindow) / 16 - program->function_numbers_.size();
      const bool known = address % 16 == 0 && number < program->numbered_kernels_.size();
      return known ? program->numbered_kernels_[number] : "";
    }
    CompiledProgram* program = nullptr;
    std::unique_ptr<CodeSpace> space;

   private:
    std::mutex& mutex_of(const std::string& kernel) {
      std::lock_guard lock(mutex_);
      return making_[kernel];
    }
    std::mutex mutex_;
    std::map<std::string, std::mutex> making_;    // guarded by mutex_; who links a kernel holds its
    std::map<std::string, KernelEntry> entries_;  // guarded by mutex_
  };

  std::unique_ptr<Loaded> load(const std::map<std::string, uint64_t>& addresses, std::string* error) override {
    std::map<std::string, uint64_t> symbols;
    for (auto& variable : variables_) {
      const auto address = addresses.find(variable.name);
      if (address == addresses.end()) {
        *error = "variable " + variable.name + " has no address";
        return nullptr;
      }
      symbols["v." + variable.name] = address->second;
    }
    for (const std::string& kernel : numbered_kernels_) symbols["e." + kernel] = function_address(kernel);
    auto loaded = std::make_unique<LoadedProgram>();
    loaded->program = this;
    loaded->space = make_code_space(symbols, error);
    if (!loaded->space) return nullptr;
    return loaded;
  }

 private:
  struct Kernel {
    const ptx::Outline::Kernel* source = nullptr;
    std::mutex mutex, making;
    std::optional<KernelCode> code;  // guarded by mutex, as the next
    std::string log;
    std::vector<char> object;  // guarded by making
  };

  uint64_t function_address(const std::string& name) const {
    for (const auto* numbers : {&function_numbers_, &kernel_numbers_})
      if (const auto it = numbers->find(name); it != numbers->end()) return kFunctionWindow + 16ull * it->second;
    return 0;
  }

  Kernel* find(const std::string& name) {
    const ptx::Outline::Kernel* source = outline_.kernel(name);
    if (!source) return nullptr;
    std::lock_guard lock(mutex_);
    Kernel& kernel = kernels_[name];
    kernel.source = source;
    return &kernel;
  }

  std::vector<char> make(const ptx::Outline::Kernel& kernel) {
    Target target(options_.cpu);
    std::string key;
    if (const std::string identity = build_identity(); !options_.cache_directory.empty() && !identity.empty()) {
      key = content_key(
          {identity, target.identity(), std::to_string(options_.window_base), outline_.unit(kernel, false)});
      if (std::vector<char> kept = cache_read(options_.cache_directory, key); !kept.empty()) return kept;
    }
    std::vector<char> object =
        Unit(outline_, kernel).generate(&target, options_.window_base, function_numbers_, outline_);
    if (!key.empty()) cache_write(options_.cache_directory, key, object);
    return object;
  }

  const ptx::Outline outline_;
  const CompileOptions options_;
  std::vector<Variable> variables_;
  std::map<std::string, uint32_t> function_numbers_, kernel_numbers_;
  std::vector<std::string> numbered_kernels_;  // from the first kernel's number on
  std::mutex mutex_;
  std::map<std::string, Kernel> kernels_;  // guarded by mutex_; what was asked for
};

}  // namespace

std::unique_ptr<Program> compile(std::string_view ptx, const CompileOptions& options, std::string* log) {
  std::unique_ptr<Program> program;
  attempt(log, [&] { program = std::make_unique<CompiledProgram>(ptx, options); });
  return program;
}

}  // namespace bandsaw::soft
