// vgpuctl's commands and options, and what is said of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/vgpuctl/commands.h"

namespace bandsaw::ctl {

struct Command {
  CLI::App* app;
  int (*run)(const Options&);
};

// Gives `app` all commands. What is typed comes into `*options`, which outlives `app`.
std::vector<Command> describe_commands(CLI::App* app, Options* options);

// Writes vgpuctl(1) and a page for each command to a folder. Returns the exit code.
int write_manuals(const CLI::App& app, const std::string& folder);

}  // namespace bandsaw::ctl
