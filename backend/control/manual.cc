#include "backend/control/manual.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "memory/base/version.h"

namespace bandsaw {
namespace {

// Text that troff prints as it is.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '"')
      out += "\\(dq";  // a macro's arguments lose theirs
    else
      out += c;
  }
  const bool is_request = out.starts_with('.') || out.starts_with('\'');
  return is_request ? "\\&" + out : out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string item(const std::string& name, const std::string& about) {
  return fmt::format(".TP\n.B {}\n{}\n", plain(name), plain(about.empty() ? "no more is to be said" : about));
}

bool is_shown(const CLI::Option* option) { return !option->get_group().empty(); }

// "-o, --output FILE"
std::string option_name(const CLI::Option* option) {
  std::string name;
  for (const std::string& one : option->get_snames()) name += (name.empty() ? "-" : ", -") + one;
  for (const std::string& one : option->get_lnames()) name += (name.empty() ? "--" : ", --") + one;
  if (option->get_items_expected_max() > 0) name += " " + option->get_type_name();
  return name;
}

std::string synopsis(const CLI::App& app, const std::string& called) {
  std::string line = ".B " + plain(called) + "\n[OPTIONS]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    line += option->get_required() ? " " + option->get_name() : " [" + option->get_name() + "]";
  }
  if (app.get_require_subcommand_min() > 0) line += " COMMAND ...";
  return ".SH SYNOPSIS\n" + line + "\n";
}

}  // namespace

std::string to_troff(const ManualPage& page) {
  return fmt::format(".TH {} {} \"\" \"Bandsaw {}\" \"Bandsaw\"\n.SH NAME\n{} \\- {}\n{}", upper(page.name),
                     page.section, kBandsawVersion, plain(page.name), plain(page.title), page.body);
}

std::string manual_section(const std::string& heading, const std::string& text) {
  std::string body = ".SH " + upper(heading) + "\n";
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    body += begin == end ? std::string(".PP\n") : plain(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return body;
}

std::string manual_list(const std::string& heading, const std::vector<std::pair<std::string, std::string>>& items) {
  std::string body = ".SH " + upper(heading) + "\n";
  for (const auto& [name, about] : items) body += item(name, about);
  return body;
}

std::string manual_of(const CLI::App& app, const std::string& called) {
  std::string body = synopsis(app, called) + manual_section("description", app.get_description());
  std::vector<std::pair<std::string, std::string>> arguments, options, commands;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      arguments.emplace_back(option->get_name(), option->get_description());
    } else if (is_shown(option)) {
      options.emplace_back(option_name(option), option->get_description());
    }
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    commands.emplace_back(called + " " + command->get_name(), command->get_description());
  }
  if (!arguments.empty()) body += manual_list("arguments", arguments);
  if (!options.empty()) body += manual_list("options", options);
  if (!commands.empty()) body += manual_list("commands", commands);
  return body;
}

bool write_manual(const std::string& folder, const ManualPage& page) {
  const auto place = std::filesystem::path(folder) / fmt::format("man{}", page.section);
  std::error_code error;
  std::filesystem::create_directories(place, error);
  std::ofstream file(place / fmt::format("{}.{}", page.name, page.section));
  file << to_troff(page);
  return static_cast<bool>(file.flush());
}

}  // namespace bandsaw
