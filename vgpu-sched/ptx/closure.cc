#include <algorithm>
#include <set>

#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {
namespace {

bool is_reference(const Variable& v) {
  return v.type == Type::kTexref || v.type == Type::kSurfref || v.type == Type::kSamplerref;
}

class Closer {
 public:
  explicit Closer(const ProgramFacts& facts) : facts_(facts) {}

  // What it found until it refused.
  Closure reached(std::string_view kernel) {
    run(kernel);
    if (closure_.own_variables.empty()) closure_.own_variables.assign(own_.begin(), own_.end());
    if (closure_.declarations.empty()) closure_.declarations.assign(declarations_.begin(), declarations_.end());
    return std::move(closure_);
  }

  std::variant<Closure, Refusal> run(std::string_view kernel) {
    const auto found = facts_.function_index.find(kernel);
    if (found == facts_.function_index.end() || !facts_.functions[found->second].function->entry)
      return Refusal{"the module has no kernel '" + std::string(kernel) + "'"};
    if (facts_.module.address_size != 64) refuse("has addresses of 32 bits");
    reach(found->second);
    for (const uint32_t f : closure_.functions) own(f);
    if (refusal_.empty()) spread();
    if (refusal_.empty()) pointers();
    if (!refusal_.empty()) return Refusal{refusal_};
    closure_.own_variables.assign(own_.begin(), own_.end());
    closure_.declarations.assign(declarations_.begin(), declarations_.end());
    return closure_;
  }

 private:
  void refuse(std::string reason) {
    if (refusal_.empty()) refusal_ = std::move(reason);
  }

  // Of a function that the kernel calls, the reason says which.
  void refuse(uint32_t f, const std::string& reason) {
    const bool kernel = f == closure_.functions[0];
    refuse(kernel ? reason : "calls '" + facts_.functions[f].function->name + "', which " + reason);
  }

  void reach(uint32_t kernel) {
    closure_.functions.push_back(kernel);
    std::set<uint32_t> known{kernel};
    for (size_t i = 0; i < closure_.functions.size(); ++i) {
      const uint32_t f = closure_.functions[i];
      const FunctionFacts& facts = facts_.functions[f];
      auto follow = [&](const std::vector<uint32_t>& list) {
        for (const uint32_t callee : list) {
          callers_[callee].push_back(f);
          if (known.insert(callee).second) closure_.functions.push_back(callee);
        }
      };
      follow(facts.callees);
      follow(facts.taken);
      if (f != kernel && facts.function->entry) refuse("launches kernels itself");
    }
  }

  void own(uint32_t f) {
    const FunctionFacts& facts = facts_.functions[f];
    if (!facts.obstacle.empty()) refuse(f, facts.obstacle);
    closure_.reads[f] = facts.reads;
    declarations_.insert(facts.declarations.begin(), facts.declarations.end());
    for (const uint32_t v : facts.variables) variable(f, v);
  }

  void variable(uint32_t f, uint32_t v) {
    const Variable& variable = *facts_.variables[v].variable;
    if (is_reference(variable)) return refuse(f, "uses the texture or surface reference '" + variable.name + "'");
    if (variable.const_bank) return refuse(f, "uses '" + variable.name + "' in a constant bank of its own");
    if (variable.count) return refuse(f, "uses the set of variables '" + variable.name + "'");
    const bool outlives = variable.space == Space::kGlobal || variable.space == Space::kConst;
    if (outlives && variable.linkage == Linkage::kExtern)
      return refuse(f, "uses '" + variable.name + "', which this module does not define");
    if (outlives && !facts_.variables[v].may_copy)
      closure_.variables[f].push_back(v);
    else
      own_.insert(v);
  }

  // What a function needs, its callers have to hand on.
  void spread() {
    std::vector<uint32_t> work = closure_.functions;
    while (!work.empty()) {
      const uint32_t f = work.back();
      work.pop_back();
      for (const uint32_t caller : callers_[f]) {
        uint8_t& reads = closure_.reads[caller];
        auto& variables = closure_.variables[caller];
        const auto& more = closure_.variables[f];
        std::vector<uint32_t> all;
        std::set_union(variables.begin(), variables.end(), more.begin(), more.end(), std::back_inserter(all));
        if (all.size() > kMaxBorrowed) return refuse("uses more variables than parameters can be added");
        if ((merged_ += all.size()) > kMaxHanded) return refuse("hands too many variables on between its functions");
        if (all.size() == variables.size() && (reads | closure_.reads[f]) == reads) continue;
        reads |= closure_.reads[f];
        variables = std::move(all);
        work.push_back(caller);
      }
    }
  }

  void pointers() {
    for (const uint32_t f : closure_.functions)
      for (const uint32_t target : facts_.functions[f].taken)
        if (closure_.reads[target] || !closure_.variables[target].empty())
          refuse("calls '" + facts_.functions[target].function->name +
                 "' through a pointer, and that reads the block's index or a variable of the module");
  }

  const ProgramFacts& facts_;
  Closure closure_;
  std::map<uint32_t, std::vector<uint32_t>> callers_;
  std::set<uint32_t> own_;
  std::set<std::string_view> declarations_;
  std::string refusal_;
  size_t merged_ = 0;
};

}  // namespace

std::variant<Closure, Refusal> close_over(const ProgramFacts& facts, std::string_view kernel) {
  return Closer(facts).run(kernel);
}

Closure reach(const ProgramFacts& facts, std::string_view kernel) { return Closer(facts).reached(kernel); }

}  // namespace bandsaw::ptx
