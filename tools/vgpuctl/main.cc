// vgpuctl: the administrator's command.
#include <CLI/CLI.hpp>

#include "backend/control/paths.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/output.h"

namespace {

using bandsaw::ctl::Options;

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 refused (the reason and what to do are on stderr, with --json on stdout);\n"
    "2 wrong usage; 3 vgpud does not run; 4 no such virtual GPU or domain.";

struct Command {
  CLI::App* app;
  int (*run)(const Options&);
};

CLI::App* named(CLI::App* app, Options* options) {
  app->add_option("NAME", options->name, "the virtual GPU")->required();
  return app;
}

void share_options(CLI::App* app, Options* options, bool memory_required) {
  auto* memory = app->add_option("--memory", options->memory, "share of the device's memory, e.g. 512M, 8G");
  if (memory_required) memory->required();
  app->add_option("--compute", options->compute, "share of the compute engine in percent (kept; not yet enforced)");
  app->add_option("--copy", options->copy, "share of the copy engines in percent (kept; not yet enforced)");
}

void libvirt_options(CLI::App* app, Options* options) {
  app->add_option("--connect", options->uri, "libvirt URI (default: libvirt's own)");
  app->add_flag("--record-only", options->record_only, "leave libvirt alone, only note it");
}

std::vector<Command> commands(CLI::App* app, Options* options) {
  auto* create = named(app->add_subcommand("create", "make a virtual GPU"), options);
  share_options(create, options, true);
  create->add_option("--device", options->device, "physical device (default: the host's)");
  create->add_option("--direct-mode", options->direct_mode, "permissions of its direct.sock, octal (default 0660)");
  create->add_option("--direct-group", options->direct_group,
                     "group of its direct.sock (default bandsaw if it exists)");
  auto* destroy = named(app->add_subcommand("destroy", "end a virtual GPU"), options);
  destroy->add_flag("--force", options->force, "also while it is attached or in use");
  auto* set = named(app->add_subcommand("set", "change shares"), options);
  share_options(set, options, false);
  auto* attach = named(app->add_subcommand("attach", "write it into a libvirt domain that is not running"), options);
  attach->add_option("DOMAIN", options->domain, "name of the domain")->required();
  libvirt_options(attach, options);
  auto* detach = named(app->add_subcommand("detach", "take it out of its domain"), options);
  detach->add_option("DOMAIN", options->domain, "name of the domain (default: the one it is attached to)");
  libvirt_options(detach, options);
  return {{create, bandsaw::ctl::create},
          {destroy, bandsaw::ctl::destroy},
          {app->add_subcommand("list", "all virtual GPUs"), bandsaw::ctl::list},
          {named(app->add_subcommand("show", "one virtual GPU and what it does"), options), bandsaw::ctl::show},
          {set, bandsaw::ctl::set},
          {named(app->add_subcommand("xml", "print what to paste into a libvirt domain"), options), bandsaw::ctl::xml},
          {attach, bandsaw::ctl::attach},
          {detach, bandsaw::ctl::detach},
          {app->add_subcommand("status", "vgpud and its device"), bandsaw::ctl::status},
          {app->add_subcommand("shutdown", "end every session, then vgpud"), bandsaw::ctl::shutdown}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.run = bandsaw::run_directory();
  CLI::App app("Makes, shows and changes the virtual GPUs of this host.", "vgpuctl");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.add_option("--run", options.run, "folder of vgpud's sockets (default BANDSAW_RUN or /run/bandsaw)");
  app.add_flag("--json", options.json, "print JSON");
  const auto table = commands(&app, &options);
  for (const Command& command : table) {
    command.app->add_flag("--json", options.json, "print JSON");
    command.app->footer(kFooter);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? bandsaw::ctl::kOk : bandsaw::ctl::kUsage;
  }
  for (const Command& command : table) {
    if (command.app->parsed()) return command.run(options);
  }
  return bandsaw::ctl::kUsage;
}
