// A prefix for new names that cannot clash with what a module holds.
#include "vgpu-sched/ptx/names.h"

#include <algorithm>
#include <string_view>

#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

constexpr std::string_view kPrefix = "bandsaw";

// Of names that begin like the prefix: the longest run of underscores that follows.
class Underscores {
 public:
  void see(std::string_view name) {
    if (name.starts_with('%')) name.remove_prefix(1);
    if (!name.starts_with(kPrefix)) return;
    name.remove_prefix(kPrefix.size());
    longest_ = std::max(longest_, std::min(name.find_first_not_of('_'), name.size()));
  }
  size_t longest() const { return longest_; }

 private:
  size_t longest_ = 0;
};

void declared_in(const Function& function, Underscores* seen) {
  for (const Variable& v : function.returns) seen->see(v.name);
  for (const Variable& v : function.parameters) seen->see(v.name);
  walk(*function.body, [&](const Statement& statement) {
    if (const auto* registers = statement.as<Registers>())
      for (const Registers::Name& name : registers->names) seen->see(name.name);
    if (const auto* variable = statement.as<Variable>()) seen->see(variable->name);
    if (const auto* label = statement.as<Label>()) seen->see(label->name);
  });
}

}  // namespace

bool is_rewriters(std::string_view name) { return name.starts_with(kPrefix); }

std::string free_prefix(const Module& module) {
  Underscores seen;
  for (const Item& item : module.items) {
    if (const auto* variable = std::get_if<Variable>(&item)) seen.see(variable->name);
    const auto* function = std::get_if<Function>(&item);
    if (!function) continue;
    seen.see(function->name);
    if (function->body) declared_in(*function, &seen);
  }
  return std::string(kPrefix) + std::string(seen.longest() + 1, '_');
}

}  // namespace bandsaw::ptx
