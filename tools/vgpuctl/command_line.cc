#include "tools/vgpuctl/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/control/manual.h"
#include "backend/control/paths.h"
#include "backend/control/sharing.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/version.h"
#include "tools/vgpuctl/output.h"

namespace bandsaw::ctl {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 refused (the reason and what to do are on stderr, with --json on stdout);\n"
    "2 wrong usage; 3 vgpud does not run; 4 no such virtual GPU, domain or segment.";

// "30", "30%" and "30 %" are one.
const CLI::Validator kPercent(
    [](std::string& text) {
      if (text.ends_with('%')) text.pop_back();
      text.erase(text.find_last_not_of(' ') + 1);
      return std::string();
    },
    "", "");

// "none" is the 0 that the API has for it.
const CLI::Validator kNoneIsZero(
    [](std::string& text) {
      if (text == "none") text = "0";
      return std::string();
    },
    "", "");

CLI::App* named(CLI::App* app, Options* options) {
  app->add_option("NAME", options->name, "the virtual GPU")->required();
  return app;
}

void share_options(CLI::App* app, Options* options, bool memory_required) {
  auto* memory = app->add_option("--memory", options->memory, "share of the device's memory, e.g. 512M, 8G");
  if (memory_required) memory->required();
  app->add_option(
      "--resident", options->resident,
      "how much of that it has on the device for certain, e.g. 4G; the rest lies in the host's memory while "
      "there is no room. all (default): nothing does");
  app->add_option("--compute", options->compute,
                  "share of the compute engine when everybody wants it, 1 to 100 % (default 1: the least weight)")
      ->transform(kPercent);
  app->add_option("--copy", options->copy, "share of each copy engine, in and out, 1 to 100 % (default 1)")
      ->transform(kPercent);
  app->add_option("--cap", options->cap, "the most it gets of an engine, even of an idle one, 1 to 100 % (100: no cap)")
      ->transform(kPercent);
  app->add_option("--reserve", options->reserve,
                  "the least it gets of an engine while it has work, 0 to 100 %, at most the cap")
      ->transform(kPercent);
  app->add_option("--priority", options->priority,
                  "-100 to 100: who goes first among those that are owed time, never more than the share; above 0, "
                  "kernels of an mps one go before the others', for programs that start from then on");
  app->add_option("--latency-us", options->latency_us,
                  "microseconds that its short work waits for others at most: 200 or more if it is time-sliced, 20 or "
                  "more if it is mps; 0 or none: no bound")
      ->transform(kNoneIsZero);
  app->add_option("--kernel-deadline-ms", options->kernel_deadline_ms,
                  "milliseconds of GPU time after which a program whose kernel still runs is ended, up to 86400000; "
                  "0 or none: never")
      ->transform(kNoneIsZero);
  app->add_option("--idle-suspend", options->idle_suspend,
                  "seconds without work after which it leaves its device, until the next call brings it back; 0 or "
                  "never: it stays; default: as configured");
  app->add_option("--sharing", options->sharing,
                  "time-sliced (default: contexts of its own) or mps (kernels overlap with those of others that are "
                  "mps in its group); for programs that start from then on");
  app->add_option(
      "--group", options->group,
      "of one that is mps: who is in it shares an MPS daemon with the others, so that a fault in one ends the "
      "programs of all, and shared memory that a kernel does not write first has what another's left there; "
      "alone (default): nobody shares with it. A GPU has one group at a time");
  app->add_option("--guard", options->guard,
                  "on or off: its kernels are kept to its own memory, so that a wild access ends its program and no "
                  "other's; code without PTX is refused; for programs that start from then on")
      ->option_text("on|off");
  app->add_option("--allow-machine-code", options->allow_machine_code,
                  "on or off: where kernels are guarded, code without PTX runs all the same, and is not guarded")
      ->option_text("on|off");
  app->add_option("--clear-shared", options->clear_shared,
                  "on or off: its kernels clear their shared memory at the end, so that the next finds nothing there; "
                  "for programs that start from then on")
      ->option_text("on|off");
  app->add_option("--sms", options->sms,
                  "SMs of its own, for one that is mps: no program of another mps one runs there; rounded up to "
                  "what the device gives out at a time, 0: none; for programs that start from then on");
  app->add_option("--host-memory", options->host_memory,
                  "most of the host's memory that its session and runners have together, e.g. 16G; default: as "
                  "configured");
  app->add_option("--limit", options->limits,
                  fmt::format("NAME=NUMBER: how much its programs may hold together, or NAME=default; there are {}",
                              fmt::join(kLimitedNames, ", ")));
  app->add_option("--owner", options->owner,
                  "USER or @GROUP of this host: nobody else's programs and VMs may use it; none: whoever may open its "
                  "sockets");
  // Earlier versions took settings of the device here; who gives them is told where they are now.
  app->add_option("--policy", options->policy)->group("");
  app->add_option("--queues", options->queues)->group("");
  app->add_option("--corun-mode", options->planning_mode)->group("");
}

std::vector<Command> scheduler_commands(CLI::App* app, Options* options) {
  auto* scheduler = app->add_subcommand("scheduler", "how all devices are scheduled, with their virtual GPUs");
  scheduler->require_subcommand(1);
  auto* set = scheduler->add_subcommand("set", "change it, at once");
  set->add_option("--policy", options->policy, "band+, band, credit or fifo");
  set->add_option("--queues", options->queues, "mrq (a queue for each engine) or sdq (one for all)");
  set->add_option(
      "--planning", options->planning_mode,
      fmt::format("how kernels of MPS virtual GPUs are planned: {}", fmt::join(planning_mode_names(), ", ")));
  set->add_option("--corun-mode", options->planning_mode)->group("");  // the name of earlier versions
  return {{scheduler->add_subcommand("show", "print it"), show_scheduler}, {set, set_scheduler}};
}

CLI::App* segment_command(CLI::App* segment, Options* options, const char* name, const char* about) {
  auto* made = segment->add_subcommand(name, about);
  made->add_option("SEGMENT", options->name, "the segment")->required();
  return made;
}

std::vector<Command> segment_commands(CLI::App* app, Options* options) {
  auto* segment = app->add_subcommand("segment", "device memory that programs of several virtual GPUs use at once");
  segment->require_subcommand(1);
  auto* create = segment_command(segment, options, "create", "make one: memory that counts against its owner's share");
  create->add_option("--vgpu", options->vgpu, "the virtual GPU that owns it")->required();
  create->add_option("--size", options->size, "bytes, e.g. 256M; rounded up to 2 MiB")->required();
  auto* grant = segment_command(segment, options, "grant", "let another virtual GPU of the same device read it");
  grant->add_option("VGPU", options->vgpu, "the virtual GPU")->required();
  grant->add_flag("--write", options->read_write, "and write it");
  auto* revoke = segment_command(segment, options, "revoke",
                                 "take a virtual GPU's rights away, and the memory from its programs, at once");
  revoke->add_option("VGPU", options->vgpu, "the virtual GPU")->required();
  auto* list = segment->add_subcommand("list", "all segments, who may use them, and who does");
  list->add_option("-o,--output", options->columns, "columns, by their headings: name,owner,size (default: all)")
      ->delimiter(',');
  list->add_flag("--no-header", options->no_header, "leave the headings out");
  auto* destroy = segment_command(segment, options, "destroy",
                                  "take its name away: nobody finds it any more, and it ends with its last user");
  destroy->add_flag("--force", options->force, "take the memory from all who use it, at once");
  return {{create, create_segment},
          {grant, grant_segment},
          {revoke, revoke_segment},
          {list, list_segments},
          {destroy, destroy_segment}};
}

void live_options(CLI::App* top, CLI::App* trace, CLI::App* hook, Options* options) {
  top->add_option("--interval", options->interval, "seconds between two samples (default 1)")
      ->check(CLI::Range(0.05, 3600.0));
  top->add_option("--count", options->count, "end after so many tables (default: on q or ctrl-C)");
  trace->add_option("-o,--output", options->output, "the file, or -; open it in ui.perfetto.dev or chrome://tracing")
      ->required();
  trace->add_option("--seconds", options->seconds, "how long to record (default 5; ctrl-C ends it earlier)")
      ->check(CLI::Range(0.01, 600.0));
  hook->add_option("DOMAIN", options->domain, "the domain that starts; its XML is read from stdin");
  hook->add_flag("--install", options->install, "put the hook where libvirt looks for it");
  hook->add_option("--hypervisor", options->hypervisor, "whose domain it is: a domain on Xen is attached as well")
      ->check(CLI::IsMember({"libvirt", "xen"}));
  hook->add_option("--wait", options->wait, "seconds in which vgpud and the session must answer")
      ->capture_default_str()
      ->check(CLI::Range(0, 600));
  hook->add_option("--hooks", options->hooks, "libvirt's folder of hooks (default /etc/libvirt/hooks)");
}

void libvirt_options(CLI::App* app, Options* options) {
  app->add_option("--connect", options->uri, "libvirt URI (default: libvirt's own)");
  app->add_flag("--record-only", options->record_only, "leave libvirt alone, only note it");
}

void live_option(CLI::App* app, Options* options, const std::string& text) {
  app->add_flag("--live", options->live, text)->excludes("--record-only");
}

void hypervisor_option(CLI::App* app, Options* options) {
  app->add_option("--hypervisor", options->hypervisor,
                  "whose domain it is: libvirt, or xen for a domain of xl's or of libvirt's on Xen, which has it at "
                  "once, or when it starts")
      ->check(CLI::IsMember({"libvirt", "xen"}));
}

void migrate_options(CLI::App* app, Options* options) {
  app->add_option("DOMAIN", options->domain, "name of the domain, whose virtual GPUs came with attach --live")
      ->required();
  app->add_option("URI", options->to, "libvirt's URI of the other host, e.g. qemu+ssh://web2/system")->required();
  app->add_option("--connect", options->uri, "libvirt URI of this host (default: libvirt's own)");
  app->add_option("--remote", options->remote,
                  "command that runs the command line after it in a shell of the other host (default: ssh, to the host "
                  "in URI); vgpuctl is called there");
  app->add_flag("--without-missing", options->without_missing,
                "give up programs that do not come back there, because they have ended meanwhile, or are the guest's "
                "kernel's own; else it all goes back, and these go on here");
  app->add_option("--migrate-uri", options->migrate_uri,
                  "where the other host's emulator is reached, e.g. tcp://10.0.0.2 (default: as libvirt chooses)");
  app->add_option("--migrate-back-uri", options->migrate_back_uri,
                  "the same of this host, for the way back if a later step fails");
  app->add_option("--folder", options->folder, "where what its programs have lies meanwhile (default /var/tmp)");
}

std::vector<Command> commands(CLI::App* app, Options* options) {
  auto* create = named(app->add_subcommand("create", "make a virtual GPU"), options);
  share_options(create, options, true);
  create->add_option(
      "--gpu,--device", options->device,
      "the GPU or software device by name, as `vgpuctl status` lists them, or by UUID (default: of those "
      "with room, the one with the most compute share left)");
  create->add_option("--direct-mode", options->direct_mode, "permissions of its direct.sock, octal (default 0660)");
  create->add_option("--direct-group", options->direct_group,
                     "group of its direct.sock (default bandsaw if it exists)");
  auto* destroy = named(app->add_subcommand("destroy", "end a virtual GPU"), options);
  destroy->add_flag("--force", options->force, "also while it is attached or in use");
  auto* shutdown = app->add_subcommand("shutdown", "end every session, then vgpud");
  shutdown->add_flag("--force", options->force, "also while some are in use");
  auto* list = app->add_subcommand("list", "all virtual GPUs");
  list->add_option("-o,--output", options->columns, "columns, by their headings: name,memory,state (default: all)")
      ->delimiter(',');
  list->add_flag("--no-header", options->no_header, "leave the headings out");
  list->add_option("--gpu,--device", options->device, "those of this device alone, by its name or UUID");
  auto* set = named(app->add_subcommand("set", "change shares, at once"), options);
  share_options(set, options, false);
  libvirt_options(set, options);
  auto* attach =
      named(app->add_subcommand("attach", "write it into a libvirt domain, or give it to a Xen domain"), options);
  attach->add_option("DOMAIN", options->domain, "name of the domain")->required();
  libvirt_options(attach, options);
  live_option(attach, options,
              "also now, while the domain runs: it needs shared memory and a free PCI Express root port");
  hypervisor_option(attach, options);
  auto* detach = named(app->add_subcommand("detach", "take it out of its domain"), options);
  detach->add_option("DOMAIN", options->domain, "name of the domain (default: the one it is attached to)");
  libvirt_options(detach, options);
  live_option(detach, options,
              "out of a domain that runs too, if it came with attach --live: the guest is asked for it");
  hypervisor_option(detach, options);
  auto* xml = named(app->add_subcommand("xml", "print what to paste into a domain's definition"), options);
  hypervisor_option(xml, options);
  xml->add_flag("--xl", options->xl, "with --hypervisor xen: for a configuration of xl's, not for libvirt");
  auto* suspend =
      named(app->add_subcommand("suspend", "let its programs wait, and free its device of all that it holds"), options);
  auto* resume =
      named(app->add_subcommand("resume", "bring a suspended one back to its device, and let it go on"), options);
  auto* save = named(app->add_subcommand("save",
                                         "suspend it, and put what its programs have on the device in a file, so that "
                                         "the host's memory is free of it too"),
                     options);
  auto* restore = named(app->add_subcommand("restore", "the same, back, and let its programs go on"), options);
  save->add_option("FILE", options->file, "it is written beside this first, and then takes its place")->required();
  save->add_flag(
      "--all", options->all,
      "not memory alone: all that its programs have, so that their runners end, and new ones follow them when "
      "it is restored; refused where some of it cannot be saved");
  restore->add_option("FILE", options->file, "what `vgpuctl save` has written last; it stays")->required();
  restore->add_flag("--without-missing", options->without_missing,
                    "give up programs that are in the file and have not come back, which they can once their session "
                    "has ended");
  auto* move = named(app->add_subcommand("move",
                                         "to another device of this host, with its programs where they can come "
                                         "along"),
                     options);
  move->add_option("DEVICE", options->device,
                   "by name, as `vgpuctl status` lists it, or by UUID (default: any other with room, as for create)");
  move->add_option("--gpu,--device", options->device, "the same, written as for create");
  auto* drain = app->add_subcommand("drain", "let a device have no new virtual GPUs; those on it go on");
  auto* undrain = app->add_subcommand("undrain", "put a drained device back into service");
  for (CLI::App* one : {drain, undrain}) {
    one->add_option("DEVICE", options->device, "by name, as `vgpuctl status` lists it, or by UUID")->required();
  }
  drain->add_flag("--move", options->move,
                  "and move those on it to other devices with room; what cannot move is named");
  auto* migrate = app->add_subcommand(
      "migrate", "move a running libvirt domain to another host, with its virtual GPUs and the programs on them");
  migrate_options(migrate, options);
  auto* top = app->add_subcommand("top", "who uses what, live (q ends it)");
  auto* trace = app->add_subcommand("trace", "record who had which engine when, for Perfetto");
  auto* report = named(app->add_subcommand("report", "what it used of what it was promised, hour by hour"), options);
  report->add_option("--last", options->last, "how far to look back: 12h, 7d, at most 31d (default 24h)");
  auto* hook =
      app->add_subcommand("hook", "what libvirt's hook calls: sets the shares in a starting domain's metadata");
  live_options(top, trace, hook, options);
  auto* completion = app->add_subcommand("completion", "print what a shell reads to complete vgpuctl's command lines");
  completion->add_option("SHELL", options->shell, "bash, zsh or fish")->required();
  auto* doctor = app->add_subcommand("doctor", "look at what this host needs for virtual GPUs, and say what to do");
  doctor->add_option("--connect", options->uri, "libvirt URI (default: libvirt's own)");
  std::vector<Command> all = {
      {create, ctl::create},
      {destroy, ctl::destroy},
      {list, ctl::list},
      {named(app->add_subcommand("show", "one virtual GPU and what it does"), options), ctl::show},
      {set, ctl::set},
      {xml, ctl::xml},
      {attach, ctl::attach},
      {detach, ctl::detach},
      {suspend, ctl::suspend},
      {resume, ctl::resume},
      {save, ctl::save},
      {restore, ctl::restore},
      {move, ctl::move},
      {drain, ctl::drain},
      {undrain, ctl::undrain},
      {migrate, ctl::migrate},
      {top, ctl::top},
      {trace, ctl::trace},
      {report, ctl::report},
      {hook, ctl::hook},
      {completion, ctl::completion},
      {doctor, ctl::doctor},
      {app->add_subcommand("status", "vgpud and its devices"), ctl::status},
      {shutdown, ctl::shutdown}};
  for (const Command& command : scheduler_commands(app, options)) all.push_back(command);
  for (const Command& command : segment_commands(app, options)) all.push_back(command);
  return all;
}

ManualPage page_of(const CLI::App& app, const std::string& name) {
  std::string called = name, page = name;
  std::replace(page.begin(), page.end(), ' ', '-');
  return {page, 1, app.get_description(),
          manual_of(app, called) + manual_section("exit status", kFooter) +
              manual_section("see also", name == "vgpuctl" ? "vgpud(8), vgpud.toml(5)" : "vgpuctl(1), vgpud(8)")};
}

// Of a command and of those in it.
void pages_of(const CLI::App& app, const std::string& called, std::vector<ManualPage>* pages) {
  pages->push_back(page_of(app, called));
  for (const CLI::App* inner : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    pages_of(*inner, called + " " + inner->get_name(), pages);
  }
}

}  // namespace

std::vector<Command> describe_commands(CLI::App* app, Options* options) {
  app->footer(kFooter);
  app->require_subcommand(1);
  app->set_version_flag("--version", std::string("vgpuctl ") + kBandsawVersion);
  app->add_option("--run", options->run, "folder of vgpud's sockets (default BANDSAW_RUN or /run/bandsaw)");
  app->add_flag("--json", options->json, "print JSON");
  std::vector<Command> all = commands(app, options);
  for (const Command& command : all) {
    command.app->add_flag("--json", options->json, "print JSON");
    command.app->footer(kFooter);
  }
  return all;
}

int write_manuals(const CLI::App& app, const std::string& folder) {
  std::vector<ManualPage> pages;
  pages_of(app, "vgpuctl", &pages);
  for (const ManualPage& page : pages) {
    if (write_manual(folder, page)) continue;
    return print_refusal(
        {kRefused, fmt::format("cannot write {}({}): {}", page.name, page.section, std::strerror(errno)),
         fmt::format("is {} a folder that you may write to?", folder)},
        false);
  }
  return kOk;
}

}  // namespace bandsaw::ctl
