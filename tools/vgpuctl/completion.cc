#include "tools/vgpuctl/completion.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "tools/vgpuctl/output.h"

namespace bandsaw::ctl {
namespace {

constexpr const char* kBash = R"(# bash completion of vgpuctl
_vgpuctl() {
  local line word
  COMPREPLY=()
  while IFS= read -r line; do
    word=${line%%$'\t'*}
    COMPREPLY+=("$word")
  done < <(vgpuctl complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _vgpuctl vgpuctl
)";

constexpr const char* kZsh = R"(#compdef vgpuctl
# zsh completion of vgpuctl
_vgpuctl() {
  local line
  local -a words_and_texts
  while IFS= read -r line; do
    words_and_texts+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done < <(vgpuctl complete-words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( $#words_and_texts )) && _describe vgpuctl words_and_texts || _files
}
_vgpuctl "$@"
)";

constexpr const char* kFish = R"(# fish completion of vgpuctl
function __vgpuctl_words
  set -l words (commandline -opc) (commandline -ct)
  vgpuctl complete-words -- $words[2..-1] 2>/dev/null
end
complete -c vgpuctl -f -a '(__vgpuctl_words)'
)";

bool takes_value(const CLI::Option* option) { return option->get_items_expected_max() > 0; }

const CLI::Option* find_option(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && option->check_name(word)) return option;
  }
  return nullptr;
}

const CLI::App* find_command(const CLI::App& app, const std::string& word) {
  const auto found = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == word; });
  return found.empty() ? nullptr : found.front();
}

// The argument that comes after so many others; empty: none.
std::string argument(const CLI::App& app, size_t index) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && index-- == 0) return option->get_name();
  }
  return "";
}

std::vector<Offer> options_of(const CLI::App& app) {
  std::vector<Offer> all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) all.push_back({"--" + name, option->get_description()});
  }
  return all;
}

std::vector<Offer> commands_of(const CLI::App& app) {
  std::vector<Offer> all;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    all.push_back({one->get_name(), one->get_description()});
  }
  return all;
}

}  // namespace

std::vector<Offer> offers(const CLI::App& app, const std::vector<std::string>& words, const Values& values) {
  const CLI::App* command = &app;
  const CLI::Option* waits_for_value = nullptr;
  size_t arguments = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (std::exchange(waits_for_value, nullptr)) continue;
    if (word.starts_with('-')) {
      const CLI::Option* const option = find_option(*command, word);
      if (option && takes_value(option)) waits_for_value = option;
    } else if (const CLI::App* const inner = find_command(*command, word)) {
      command = inner;
    } else {
      ++arguments;
    }
  }
  const std::string typed = words.empty() ? "" : words.back();
  std::vector<Offer> all;
  if (waits_for_value) {
    const auto& names = waits_for_value->get_lnames();
    all = values(names.empty() ? "" : "--" + names.front());
  } else if (typed.starts_with('-')) {
    all = options_of(*command);
  } else if (all = commands_of(*command); all.empty()) {
    all = values(argument(*command, arguments));
  }
  std::erase_if(all, [&](const Offer& offer) { return !offer.word.starts_with(typed); });
  return all;
}

std::string completion_script(const std::string& shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : shell == "fish" ? kFish : "";
}

int completion(const Options& options) {
  const std::string script = completion_script(options.shell);
  if (script.empty()) {
    return print_refusal({kUsage, fmt::format("no completion for '{}'", options.shell), "there are bash, zsh and fish"},
                         options.json);
  }
  fmt::print("{}", script);
  return kOk;
}

}  // namespace bandsaw::ctl
