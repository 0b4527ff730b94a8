#include "vgpu-sched/ptx/link.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "vgpu-sched/ptx/rename.h"

namespace bandsaw::ptx {
namespace {

std::string_view name_of(const Item& item) {
  if (const auto* variable = std::get_if<Variable>(&item)) return variable->name;
  if (const auto* function = std::get_if<Function>(&item)) return function->name;
  if (const auto* alias = std::get_if<Alias>(&item)) return alias->name;
  return {};
}

Linkage linkage_of(const Item& item) {
  if (const auto* variable = std::get_if<Variable>(&item)) return variable->linkage;
  if (const auto* function = std::get_if<Function>(&item)) return function->linkage;
  return Linkage::kVisible;  // an alias; its declaration tells, if it is private
}

// How good an item is as the meaning of a global name: the best one stays.
enum class Strength { kDeclaration, kCommon, kWeak, kStrong };

Strength strength_of(const Item& item) {
  Linkage linkage = linkage_of(item);
  const auto* function = std::get_if<Function>(&item);
  if (linkage == Linkage::kExtern || (function && !function->body)) return Strength::kDeclaration;
  if (linkage == Linkage::kCommon) return Strength::kCommon;
  return linkage == Linkage::kWeak ? Strength::kWeak : Strength::kStrong;
}

// "sm_90a" -> 90 and "a"; what is not an architecture is less than all that are.
std::tuple<unsigned, std::string> architecture(const std::string& target) {
  if (!target.starts_with("sm_")) return {0, target};
  unsigned number = 0;
  size_t i = 3;
  for (; i < target.size() && i < 9 && target[i] >= '0' && target[i] <= '9'; ++i)
    number = number * 10 + target[i] - '0';
  return {number, target.substr(i)};
}

class Linker {
 public:
  explicit Linker(std::vector<Module> units) : units_(std::move(units)) {}

  Module link() {
    header();
    separate_private_names();
    resolve();
    for (const Module& unit : units_)
      for (const Item& item : unit.items)
        if (std::holds_alternative<Directive>(item)) result_.items.push_back(item);
    declare_functions();
    for (const Module& unit : units_)
      for (const Item& item : unit.items)
        if (std::holds_alternative<Variable>(item) && stays(item) && !defined_.contains(std::string(name_of(item))))
          define(std::string(name_of(item)));
    for (Module& unit : units_)
      for (Item& item : unit.items) {
        auto* function = std::get_if<Function>(&item);
        if (function && stays(item) && function->body) result_.items.push_back(std::move(item));
      }
    for (Module& unit : units_)
      for (Item& item : unit.items)
        if (std::holds_alternative<Alias>(item) && stays(item)) result_.items.push_back(std::move(item));
    return std::move(result_);
  }

 private:
  void header() {
    for (const Module& unit : units_) {
      auto version = std::tie(unit.version_major, unit.version_minor);
      if (version > std::tie(result_.version_major, result_.version_minor))
        std::tie(result_.version_major, result_.version_minor) = version;
      if (&unit != &units_.front() && unit.address_size != result_.address_size)
        throw LinkError("units of different address sizes");
      result_.address_size = unit.address_size;
      if (unit.targets.empty()) continue;
      if (result_.targets.empty()) result_.targets.push_back(unit.targets[0]);
      if (architecture(unit.targets[0]) > architecture(result_.targets[0])) result_.targets[0] = unit.targets[0];
      for (size_t i = 1; i < unit.targets.size(); ++i) {
        bool known = std::count(result_.targets.begin(), result_.targets.end(), unit.targets[i]);
        if (!known && unit.targets[i] != "debug") result_.targets.push_back(unit.targets[i]);
      }
    }
  }

  void separate_private_names() {
    std::map<std::string, std::set<size_t>, std::less<>> users;
    for (size_t u = 0; u < units_.size(); ++u)
      for (const Item& item : units_[u].items)
        if (!name_of(item).empty()) users[std::string(name_of(item))].insert(u);
    for (size_t u = 0; u < units_.size(); ++u) {
      Renaming renaming;
      for (const Item& item : units_[u].items) {
        std::string name(name_of(item));
        if (name.empty() || linkage_of(item) != Linkage::kNone || users[name].size() < 2) continue;
        std::string fresh = name + "$" + std::to_string(u);
        while (users.contains(fresh)) fresh += "_";
        renaming.emplace(name, fresh);
      }
      for (const auto& [name, fresh] : renaming) users[fresh].insert(u);
      rename(&units_[u], renaming);
      drop_debug_data(&units_[u]);
    }
  }

  // best_: which item each name means from now on.
  void resolve() {
    for (const Module& unit : units_)
      for (const Item& item : unit.items) {
        std::string name(name_of(item));
        if (name.empty()) continue;
        auto [known, added] = best_.try_emplace(name, &item);
        if (added) continue;
        const Item& other = *known->second;
        if (std::holds_alternative<Variable>(item) != std::holds_alternative<Variable>(other))
          throw LinkError("'" + name + "' is a function and a variable");
        Strength mine = strength_of(item), theirs = strength_of(other);
        if (mine == Strength::kStrong && theirs == Strength::kStrong)
          throw LinkError("two definitions of '" + name + "'");
        if (mine > theirs || (mine == theirs && larger(item, other))) known->second = &item;
      }
    for (const auto& [name, item] : best_)
      if (const auto* variable = std::get_if<Variable>(item)) variables_.emplace(name, variable);
  }

  // Of two `.common` or two `.extern .shared x[]` the bigger and the better aligned one serves both.
  static bool larger(const Item& a, const Item& b) {
    const auto *x = std::get_if<Variable>(&a), *y = std::get_if<Variable>(&b);
    if (!x || !y || strength_of(a) == Strength::kWeak) return false;
    return std::tuple(x->bytes(), x->alignment()) > std::tuple(y->bytes(), y->alignment());
  }

  bool stays(const Item& item) const { return best_.at(std::string(name_of(item))) == &item; }

  // All functions are declared first: variables hold their addresses, and units call each other both ways.
  void declare_functions() {
    std::set<std::string_view> aliases;
    for (const auto& [name, item] : best_) {
      const auto* alias = std::get_if<Alias>(item);
      if (alias) aliases.insert(alias->name);
    }
    std::set<std::string_view> declared;
    for (const Module& unit : units_)
      for (const Item& item : unit.items) {
        const auto* function = std::get_if<Function>(&item);
        if (!function || function->entry) continue;
        bool alias = aliases.contains(function->name);  // its declaration is all it has
        if (!(alias || stays(item)) || !declared.insert(function->name).second) continue;
        Function declaration = *function;
        declaration.body.reset();
        std::erase_if(declaration.directives, [](const Directive& d) { return d.name == "pragma"; });
        if (alias && declaration.linkage == Linkage::kExtern) declaration.linkage = Linkage::kVisible;
        result_.items.push_back(std::move(declaration));
      }
  }

  // Those whose addresses an initial value holds come first. Units may refer to each other in a circle: `.extern`.
  void define(const std::string& name) {
    auto [state, added] = defined_.try_emplace(name, false);
    const Variable& variable = *variables_.at(name);
    if (!added) {
      if (!state->second && variable.linkage != Linkage::kNone) {
        Variable declaration = variable;
        declaration.linkage = Linkage::kExtern;
        declaration.initial.reset();
        result_.items.push_back(std::move(declaration));
        state->second = true;
      }
      return;
    }
    if (variable.initial)
      for (const std::string& target : addresses_in(*variable.initial))
        if (!is_defined(target) && variables_.contains(target) && target != name && depth_ < kMaxChain)
          define_nested(target);
    defined_[name] = true;
    result_.items.push_back(variable);
  }

  bool is_defined(const std::string& name) const {
    auto known = defined_.find(name);
    return known != defined_.end() && known->second;
  }
  void define_nested(const std::string& name) {
    ++depth_;
    define(name);
    --depth_;
  }

  static constexpr int kMaxChain = 1000;  // of variables that point to each other; longer ones keep their order
  std::vector<Module> units_;
  Module result_;
  std::map<std::string, const Item*> best_;
  std::map<std::string, const Variable*> variables_;
  std::map<std::string, bool> defined_;  // false: being defined just now
  int depth_ = 0;
};

}  // namespace

Module link(std::vector<Module> units) {
  if (units.empty()) throw LinkError("no units");
  if (units.size() == 1) return std::move(units[0]);
  return Linker(std::move(units)).link();
}

}  // namespace bandsaw::ptx
