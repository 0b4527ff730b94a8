// What a shell offers for a command line of vgpuctl that is not finished.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace bandsaw::ctl {

struct Offer {
  std::string word;
  std::string about;  // may be empty
};

// What may stand for an argument ("NAME", "DOMAIN") or for the value of an option ("--sharing"). Empty: anything.
using Values = std::function<std::vector<Offer>(const std::string& of)>;

// `words`: those behind the program's name; the last one is being typed and may be empty. Offers begin with it.
std::vector<Offer> offers(const CLI::App& app, const std::vector<std::string>& words, const Values& values);

// For bash, zsh or fish: a script that asks `vgpuctl complete-words` for each word. Empty: another shell.
std::string completion_script(const std::string& shell);

}  // namespace bandsaw::ctl
