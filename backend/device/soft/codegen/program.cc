// compile(): what a program tells about its kernels and variables; each kernel is parsed, flattened, generated,
// optimised and cached by itself when it is asked for. In a large module that goes for functions that kernels call
// through pointers, too.
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "backend/device/soft/codegen/cache.h"
#include "backend/device/soft/codegen/device_runtime.h"
#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/jit.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/unit.h"
#include "backend/device/soft/codegen/variables.h"
#include "backend/device/soft/compile.h"
#include "vgpu-sched/ptx/outline.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft {
namespace {

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

// A later PTX may have words that are not known here: kernels with some are refused when they are to run.
bool is_known_ptx(const ptx::Module& module) {
  return std::pair(module.version_major, module.version_minor) <= std::pair(9u, 4u);
}

class CompiledProgram final : public Program {
 public:
  // Throws ParseError or CompileError.
  CompiledProgram(std::string_view text, const CompileOptions& options)
      : outline_(with_device_runtime(std::string(text))), options_(options) {
    const bool large = bytes_of(outline_.functions()) > options.functions_at_once;
    const ptx::Module tree = parsed(outline_.declarations(!large));
    if (bytes_of(outline_.kernels()) <= options.checked_at_once) check_kernels(is_known_ptx(tree));
    FlatModule flat = flatten(tree);
    variables_ = module_variables(flat);
    if (large) parts_ = std::make_unique<Parts>(outline_, flat.fixed_shared_bytes);
    uint32_t next = 0;
    for (const auto& function : outline_.functions()) {
      function_numbers_[function.name] = next++;
      functions_.push_back({&function, function_signature(*tree.function(function.name))});
    }
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
    Made* known = outline_.kernel(name) ? find(name) : nullptr;
    if (!known) return nullptr;
    std::lock_guard lock(known->mutex);
    if (!known->code && known->log.empty()) attempt(&known->log, [&] { known->code = unit_of(known)->description(); });
    if (known->code) return &*known->code;
    *log = known->log;
    return nullptr;
  }

  std::shared_ptr<const timing::Code> timing_code(const std::string& name) override {
    Made* known = options_.record && outline_.kernel(name) ? find(name) : nullptr;
    if (!known) return nullptr;
    std::lock_guard lock(known->mutex);
    std::string log;  // of a kernel that cannot be compiled either
    if (!known->timing_code) {
      attempt(&log, [&] {
        known->timing_code = std::make_shared<timing::Code>(Unit(source(), *known->definition).timing_code());
      });
    }
    const bool recorded = known->timing_code && !known->timing_code->instructions.empty();
    return recorded ? known->timing_code : nullptr;
  }

  // The object code of a kernel or function, from the cache on disk if it is there. Empty: `log` says why. One thread
  // at a time makes it.
  std::vector<char> object(const std::string& name, std::string* log) {
    Made* known = find(name);
    if (!known) return {};
    std::lock_guard lock(known->making);
    if (known->object.empty()) {
      attempt(log, [&] {
        known->object = make(*known->definition, {},
                             [&](Target* target) { return unit_of(known)->generate(target, options_.record); });
      });
    }
    return known->object;
  }

  // The same of a piece of a long kernel.
  std::vector<char> piece_object(const std::string& kernel, uint32_t piece, std::string* log) {
    Made* const known = find(kernel);
    std::vector<char> object;
    attempt(log, [&] {
      object = make(*known->definition, fmt::format("piece {}", piece),
                    [&](Target* target) { return unit_of(known)->generate_piece(target, piece); });
    });
    return object;
  }

  class LoadedProgram final : public Loaded, public FunctionFinder {
   public:
    explicit LoadedProgram(CompiledProgram* of) : program(of), functions_(of->functions_.size()) {}
    KernelEntry entry(const std::string& kernel, std::string* log) override {
      return reinterpret_cast<KernelEntry>(code(kernel, log));
    }
    uint64_t function_address(const std::string& name) const override { return program->function_address(name); }
    std::string kernel_at(uint64_t address) const override {
      const uint64_t number = (address - kFunctionWindow) / 16 - program->function_numbers_.size();
      const bool known = address % 16 == 0 && number < program->numbered_kernels_.size();
      return known ? program->numbered_kernels_[number] : "";
    }
    void compile_by(StartElsewhere start, uint32_t at_once) override {
      start_ = std::move(start);
      at_once_ = at_once;
    }
    void* find(uint64_t address, uint64_t signature) override {
      const uint64_t number = (address - kFunctionWindow) / 16;
      if (address % 16 != 0 || number >= functions_.size()) return nullptr;
      const auto& function = program->functions_[number];
      if (function.signature != signature) return nullptr;
      if (void* const known = functions_[number].load(std::memory_order_acquire)) return known;
      void* const made = wait_of(number, function.definition->name)();
      functions_[number].store(made, std::memory_order_release);
      return made;
    }
    PieceTable& pieces(uint64_t kernel, uint32_t count) override {
      std::lock_guard lock(mutex_);
      std::unique_ptr<PieceTable>& table = pieces_[kernel];
      if (!table) table = table_of(kernel_at(kernel), count);
      return *table;
    }
    CompiledProgram* const program;
    std::unique_ptr<CodeSpace> space;

   private:
    // Several warps come to a function at once as a rule.
    Wait wait_of(uint64_t number, const std::string& name) {
      std::lock_guard lock(waits_mutex_);
      Wait& wait = waits_[number];
      if (!wait) wait = start_(name, "", [this, &name](std::string* log) { return code(name, log); });
      return wait;
    }
    // Of a kernel or a function.
    void* code(const std::string& name, std::string* log) {
      return linked(Unit::symbol(program->outline_, name), log, [&] { return program->object(name, log); });
    }
    std::unique_ptr<PieceTable> table_of(const std::string& kernel, uint32_t count) {
      const auto make = [this, kernel](uint32_t piece, std::string* log) {
        return linked(piece_symbol(kernel, piece), log, [&] { return program->piece_object(kernel, piece, log); });
      };
      const auto start = [this, kernel, count](uint32_t piece, Make made) {
        return start_(kernel, fmt::format("part {} of {}", piece + 1, count), std::move(made));
      };
      return std::make_unique<PieceTable>(count, at_once_, make, start);
    }
    // nullptr: the object is empty, or cannot be linked.
    template <class MakeObject>
    void* linked(const std::string& symbol, std::string* log, const MakeObject& make) {
      std::lock_guard lock(mutex_of(symbol));
      {
        std::lock_guard found_lock(mutex_);
        if (const auto found = entries_.find(symbol); found != entries_.end()) return found->second;
      }
      const std::vector<char> object = make();
      if (object.empty()) return nullptr;
      void* const entry = space->add(object, symbol, log);
      std::lock_guard found_lock(mutex_);
      if (entry) entries_[symbol] = entry;
      return entry;
    }
    std::mutex& mutex_of(const std::string& symbol) {
      std::lock_guard lock(mutex_);
      return making_[symbol];
    }
    std::vector<std::atomic<void*>> functions_;  // by number
    std::mutex waits_mutex_;
    std::map<uint64_t, Wait> waits_;  // guarded by waits_mutex_; of those that were asked for
    StartElsewhere start_;
    uint32_t at_once_ = 1;
    std::mutex mutex_;
    std::map<std::string, std::mutex> making_;                // guarded by mutex_; who links one holds its
    std::map<std::string, void*> entries_;                    // guarded by mutex_; by symbol
    std::map<uint64_t, std::unique_ptr<PieceTable>> pieces_;  // guarded by mutex_; by the kernel's address
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
    auto loaded = std::make_unique<LoadedProgram>(this);
    symbols["m.functions"] = reinterpret_cast<uint64_t>(static_cast<FunctionFinder*>(loaded.get()));
    loaded->space = make_code_space(symbols, error);
    if (!loaded->space) return nullptr;
    return loaded;
  }

 private:
  struct Made {
    const ptx::Outline::Definition* definition = nullptr;
    std::mutex mutex, making, reading;
    std::optional<KernelCode> code;  // guarded by mutex, as the next
    std::string log;
    std::shared_ptr<const timing::Code> timing_code;
    std::vector<char> object;          // guarded by making
    std::shared_ptr<const Unit> unit;  // guarded by reading; of a kernel in pieces
  };
  struct NumberedFunction {
    const ptx::Outline::Definition* definition;
    uint64_t signature;
  };

  static size_t bytes_of(const std::vector<ptx::Outline::Definition>& all) {
    size_t bytes = 0;
    for (const auto& one : all) bytes += one.end - one.begin;
    return bytes;
  }

  void check_kernels(bool words) const {
    for (const auto& kernel : outline_.kernels()) {
      uint32_t first_line = 0;
      const ptx::Function alone = outline_.alone(kernel, &first_line);
      if (words) check_words(*alone.body, first_line);
      check_shared(alone, first_line);
    }
  }

  UnitSource source() const { return {&outline_, parts_.get(), &function_numbers_, &options_}; }

  // That of a kernel in pieces is kept for them: to read and analyse a long one takes seconds.
  std::shared_ptr<const Unit> unit_of(Made* made) const {
    std::lock_guard lock(made->reading);
    if (made->unit) return made->unit;
    const auto unit = std::make_shared<const Unit>(source(), *made->definition);
    if (!options_.record && unit->in_pieces()) made->unit = unit;
    return unit;
  }

  uint64_t function_address(const std::string& name) const {
    for (const auto* numbers : {&function_numbers_, &kernel_numbers_})
      if (const auto it = numbers->find(name); it != numbers->end()) return kFunctionWindow + 16ull * it->second;
    return 0;
  }

  Made* find(const std::string& name) {
    const ptx::Outline::Definition* definition = outline_.kernel(name);
    if (!definition) definition = outline_.function(name);
    if (!definition) return nullptr;
    std::lock_guard lock(mutex_);
    Made& made = made_[name];
    made.definition = definition;
    return &made;
  }

  // All that the code depends on. `part`: which of the definition's objects it is.
  std::string cache_key(const Target& target, const ptx::Outline::Definition& definition, std::string part) const {
    const std::string identity = build_identity();
    if (options_.cache_directory.empty() || identity.empty()) return {};
    std::string places;
    if (parts_)
      for (const auto* one : parts_->closure(definition))
        places += std::to_string(parts_->shared_base(one->name)) + " ";
    part += fmt::format(" of {} above {} or {} and {}, functions of {} apart", options_.piece, options_.kernel_at_once,
                        options_.parting_at_once, options_.region_at_once, options_.function_at_once);
    return content_key({identity, target.identity(), std::to_string(options_.window_base), part,
                        Unit::symbol(outline_, definition.name),
                        parts_ ? "part " + places + std::to_string(parts_->fixed_shared_bytes()) : "",
                        options_.record ? "records" : "", source().text(definition, false)});
  }

  template <class Generate>
  std::vector<char> make(const ptx::Outline::Definition& definition, const std::string& part, Generate&& generate) {
    Target target(options_.cpu, options_.passes);
    const std::string key = cache_key(target, definition, part);
    if (!key.empty()) {
      if (std::vector<char> kept = cache_read(options_.cache_directory, key, options_.keeper); !kept.empty())
        return kept;
    }
    if (options_.generates) options_.generates();
    std::vector<char> object = generate(&target);
    if (key.empty()) return object;
    if (options_.keeper) {
      cache_hand_over(options_.keeper, key, object);
    } else {
      cache_write(options_.cache_directory, key, object);
    }
    return object;
  }

  const ptx::Outline outline_;
  const CompileOptions options_;
  std::unique_ptr<const Parts> parts_;  // of a large module
  std::vector<Variable> variables_;
  std::map<std::string, uint32_t> function_numbers_, kernel_numbers_;
  std::vector<NumberedFunction> functions_;    // by number
  std::vector<std::string> numbered_kernels_;  // from the first kernel's number on
  std::mutex mutex_;
  std::map<std::string, Made> made_;  // guarded by mutex_; what was asked for
};

}  // namespace

std::unique_ptr<Program> compile(std::string_view ptx, const CompileOptions& options, std::string* log) {
  std::unique_ptr<Program> program;
  attempt(log, [&] { program = std::make_unique<CompiledProgram>(ptx, options); });
  return program;
}

}  // namespace bandsaw::soft
