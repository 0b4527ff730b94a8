// vgpuctl: the administrator's command.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "backend/control/paths.h"
#include "backend/control/sharing.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/version.h"
#include "tools/vgpuctl/command_line.h"
#include "tools/vgpuctl/completion.h"
#include "tools/vgpuctl/names.h"
#include "tools/vgpuctl/output.h"

namespace {

using bandsaw::ctl::Exit;
using bandsaw::ctl::Offer;
using bandsaw::ctl::Options;
using bandsaw::ctl::Refusal;

// Of those that there are, the one that was probably meant; or all.
std::string instead_of(const std::string& word, const std::vector<std::string>& names, const char* all) {
  const std::string nearest = bandsaw::nearest_name(word, names);
  if (!nearest.empty()) return fmt::format("did you mean '{}'?", nearest);
  return fmt::format("{} {}", all, fmt::join(names, ", "));
}

// In words of ours: "--compute takes a whole number, and not '30percent'".
std::string not_converted(const CLI::App& command, const std::string& said) {
  constexpr std::string_view kBegin = "Could not convert: ", kBetween = " = ";
  const size_t between = said.find(kBetween);
  if (!said.starts_with(kBegin) || between == said.npos) return said;
  const std::string name = said.substr(kBegin.size(), between - kBegin.size());
  const CLI::Option* const option = command.get_option_no_throw(name);
  const bool whole = option && option->get_type_name().find("INT") != std::string::npos;
  return fmt::format("{} takes a {}number, and not '{}'", name, whole ? "whole " : "",
                     said.substr(between + kBetween.size()));
}

// The command that was given, as far as there is one, and how it is typed.
CLI::App* given_command(CLI::App* app, std::string* called) {
  *called = app->get_name();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
    *called += " " + app->get_name();
  }
  return app;
}

// What was wrong with the command line, and what to do.
Refusal wrong_usage(CLI::App& app, const CLI::ParseError& error) {
  std::string called;
  CLI::App* const command = given_command(&app, &called);
  const std::string help = fmt::format("see `{} --help`", called);
  std::vector<std::string> extra = app.remaining(true);
  std::erase(extra, "--json");  // where a command is missing, that is what is wrong
  if (command->get_require_subcommand_min() > 0) {
    std::vector<std::string> names;
    for (const CLI::App* one : command->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(one->get_name());
    }
    const auto word = std::find_if(extra.begin(), extra.end(), [](const auto& text) { return !text.starts_with('-'); });
    if (word != extra.end()) {
      return {Exit::kUsage, fmt::format("no command '{} {}'", called, *word),
              instead_of(*word, names, "the commands are")};
    }
    if (extra.empty()) {
      return {Exit::kUsage, fmt::format("`{}` needs a command", called),
              fmt::format("the commands are {}", fmt::join(names, ", "))};
    }
  }
  if (!extra.empty() && extra.front().starts_with('-')) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command->get_options()) {
      if (!option->get_group().empty() && !option->get_lnames().empty())
        names.push_back("--" + option->get_lnames()[0]);
    }
    return {Exit::kUsage, fmt::format("`{}` has no option '{}'", called, extra.front()),
            instead_of(extra.front(), names, "the options are")};
  }
  return {Exit::kUsage, not_converted(*command, error.what()), help};
}

std::vector<Offer> named(const std::vector<std::string>& words) {
  std::vector<Offer> all;
  for (const std::string& word : words) all.push_back({word, ""});
  return all;
}

// What may stand for an argument or for an option's value, as it is on this host now.
std::vector<Offer> values(const Options& options, const std::string& of) {
  if (of == "NAME") return named(bandsaw::ctl::vgpu_names(options));
  if (of == "VGPU" || of == "--vgpu") return named(bandsaw::ctl::vgpu_names(options));
  if (of == "SEGMENT") return named(bandsaw::ctl::segment_names(options));
  if (of == "DOMAIN") return named(bandsaw::ctl::domain_names(options));
  if (of == "SHELL") return named({"bash", "zsh", "fish"});
  if (of == "--sharing") return named({"time-sliced", "mps"});
  if (of == "--group") return named(bandsaw::ctl::group_names(options));
  if (of == "--policy") return named({"band+", "band", "credit", "fifo"});
  if (of == "--queues") return named({"mrq", "sdq"});
  if (of == "--planning") return named(bandsaw::planning_mode_names());
  if (of == "--gpu" || of == "DEVICE") return named(bandsaw::ctl::device_names(options));
  return {};
}

// vgpuctl complete-words [--] WORD...: for the completion of shells.
int print_offers(const CLI::App& app, const Options& options, int argc, char** argv) {
  std::vector<std::string> words(argv + 2, argv + argc);
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  for (const Offer& offer : bandsaw::ctl::offers(app, words, [&](const auto& of) { return values(options, of); })) {
    fmt::print("{}\t{}\n", offer.word, offer.about);
  }
  return bandsaw::ctl::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.run = bandsaw::run_directory();
  CLI::App app("Makes, shows and changes the virtual GPUs of this host.", "vgpuctl");
  const auto table = bandsaw::ctl::describe_commands(&app, &options);
  if (argc >= 2 && argv[1] == std::string_view("complete-words")) return print_offers(app, options, argc, argv);
  if (argc == 3 && argv[1] == std::string_view("--write-manual")) return bandsaw::ctl::write_manuals(app, argv[2]);
  // Whatever else is wrong, as an option without its value, whose value it would be.
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return bandsaw::ctl::print_refusal(wrong_usage(app, error), json);
  }
  given_command(&app, &options.called);
  options.json |= json;
  for (const bandsaw::ctl::Command& command : table) {
    if (command.app->parsed()) return command.run(options);
  }
  return bandsaw::ctl::kUsage;
}
