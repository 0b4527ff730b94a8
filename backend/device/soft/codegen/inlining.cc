#include "backend/device/soft/codegen/inlining.h"

#include <set>
#include <vector>

#include "backend/device/soft/codegen/gathering.h"
#include "backend/device/soft/codegen/opinfo.h"
#include "vgpu-sched/ptx/names.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::soft {
namespace {

// What its own instructions say of a function.
struct Facts {
  const ptx::Function* source = nullptr;
  size_t instructions = 0;
  bool gathers = false, loops = false, looks = false;  // at what others may change
  bool stays = false;                                  // what it has of memory is not a call's own, or ends with it
  std::vector<std::string> callees;                    // one for each call
};

bool takes_stack(const ptx::Instruction& in) {
  return in.opcode == "alloca" || in.opcode == "stacksave" || in.opcode == "stackrestore";
}

// All calls share these. Shared memory has its place by function.
bool is_static(const ptx::Variable& v) { return v.space == ptx::Space::kGlobal || v.space == ptx::Space::kConst; }

class Reader {
 public:
  explicit Reader(const ptx::Function& function) {
    facts_.source = &function;
    ptx::walk(*function.body, [this](const ptx::Statement& statement) {
      if (const auto* in = statement.as<ptx::Instruction>()) note(*in);
      if (const auto* label = statement.as<ptx::Label>()) labels_.insert(label->name);
      const auto* variable = statement.as<ptx::Variable>();
      facts_.stays = facts_.stays || (variable && is_static(*variable));
    });
  }
  Facts facts() { return std::move(facts_); }

 private:
  void note(const ptx::Instruction& in) {
    ++facts_.instructions;
    facts_.gathers = facts_.gathers || is_gathering(in);
    facts_.looks = facts_.looks || may_spin(in);
    facts_.stays = facts_.stays || takes_stack(in);
    if (const std::string callee = called_function(in); !callee.empty()) facts_.callees.push_back(callee);
    const auto* to = in.opcode == "bra" && !in.operands.empty() ? in.operands[0].as<ptx::Symbol>() : nullptr;
    facts_.loops = facts_.loops || (to && labels_.contains(to->name));
  }

  Facts facts_;
  std::set<std::string> labels_;  // so far
};

// Callees first. Without those that may call themselves, and their callers.
std::vector<const Facts*> in_order(const std::map<std::string, Facts>& all) {
  std::map<std::string, std::vector<const Facts*>> callers;
  std::map<const Facts*, size_t> open;  // calls of functions that have no place yet
  std::vector<const Facts*> order;
  for (const auto& [name, f] : all) {
    for (const std::string& callee : f.callees) {
      if (!all.contains(callee)) continue;
      callers[callee].push_back(&f);
      ++open[&f];
    }
    if (!open.contains(&f)) order.push_back(&f);
  }
  for (size_t i = 0; i < order.size(); ++i)
    for (const Facts* caller : callers[order[i]->source->name])
      if (--open[caller] == 0) order.push_back(caller);
  return order;
}

const ptx::Instruction* last_of(const ptx::Function& function) {
  const auto& statements = function.body->statements;
  return statements.empty() ? nullptr : statements.back().as<ptx::Instruction>();
}

}  // namespace

bool can_be(const ptx::Variable& parameter, const ptx::Variable& buffer) {
  return buffer.space == ptx::Space::kParam && buffer.is_array() == parameter.is_array() &&
         buffer.bytes() == parameter.bytes();
}

std::map<std::string, InlinedFunction> inlined_functions(const ptx::Module& module) {
  std::map<std::string, Facts> all;
  for (const auto& item : module.items) {
    const auto* f = std::get_if<ptx::Function>(&item);
    // The guard's functions look at what others may change and loop, but wait for nobody; and they have many callers.
    if (f && f->body && !f->entry && !ptx::is_rewriters(f->name)) all[f->name] = Reader(*f).facts();
  }
  std::map<std::string, InlinedFunction> inlined;
  std::set<std::string> looking, waiting;
  for (const Facts* f : in_order(all)) {
    const std::string& name = f->source->name;
    size_t size = f->instructions;
    bool looks = f->looks, waits = f->gathers;
    for (const std::string& callee : f->callees) {
      looks = looks || looking.contains(callee);
      waits = waits || waiting.contains(callee);
      if (const auto found = inlined.find(callee); found != inlined.end()) size += found->second.all;
    }
    waits = waits || (looks && f->loops);
    if (looks) looking.insert(name);
    if (waits) waiting.insert(name);
    if (waits && !f->stays && size <= kMostInlined)
      inlined[name] = {f->source, last_of(*f->source), f->instructions, size};
  }
  return inlined;
}

}  // namespace bandsaw::soft
