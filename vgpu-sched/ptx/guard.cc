#include "vgpu-sched/ptx/guard.h"

#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/guard_access.h"
#include "vgpu-sched/ptx/guard_function.h"
#include "vgpu-sched/ptx/guard_helpers.h"
#include "vgpu-sched/ptx/names.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

// Functions that are defined elsewhere, and whose reach is known.
bool is_known_elsewhere(std::string_view name) { return name == "vprintf" || name == "__assertfail"; }

std::string why_not(const Module& module) {
  if (module.address_size != 64) return "has no addresses of 64 bits";
  std::set<std::string_view> defined;
  for (const Item& item : module.items)
    if (const auto* function = std::get_if<Function>(&item); function && function->body) defined.insert(function->name);
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (!function) continue;
    if (!function->body) {
      if (!defined.contains(function->name) && !is_known_elsewhere(function->name))
        return "calls '" + function->name + "', which is defined elsewhere";
      continue;
    }
    std::string why;
    walk(*function->body, [&](const Statement& statement) {
      const auto* instruction = statement.as<Instruction>();
      if (instruction && why.empty()) why = why_not_guarded(*instruction);
    });
    if (!why.empty()) return "in '" + function->name + "' " + why;
  }
  return "";
}

}  // namespace

std::variant<std::string, Refusal> guard(Module module, const GuardArea& area) {
  if (std::string why = why_not(module); !why.empty()) return Refusal{std::move(why)};
  const std::string prefix = free_prefix(module);
  const GuardHelpers helpers(module, area, prefix);
  Module made;
  made.version_major = module.version_major;
  made.version_minor = module.version_minor;
  made.address_size = module.address_size;
  for (const std::string& target : module.targets)
    if (target != "debug") made.targets.push_back(target);
  const Scope names(module);
  bool helped = false;
  for (const Item& item : module.items) {
    if (std::holds_alternative<Section>(item) || std::holds_alternative<File>(item)) continue;  // of the debugger's
    const auto* function = std::get_if<Function>(&item);
    if (!function || !function->body) {
      made.items.push_back(item);
      continue;
    }
    if (!helped) helpers.declare(&made);
    helped = true;
    GuardedFunction guarded(module, names, *function, area, prefix);
    made.items.emplace_back(guarded.run());
    if (!guarded.refusal().empty()) return Refusal{"in '" + function->name + "' " + guarded.refusal()};
  }
  if (helped) helpers.define(&made);
  return print(made);
}

}  // namespace bandsaw::ptx
