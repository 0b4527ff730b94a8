// vgpuctl migrate: a running domain goes to another host, with its virtual GPUs and the programs on them. Each step is
// a command that there is anyhow, here or on the other host, and has another one that takes it back.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/other_host.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/live.h"
#include "hypervisor/libvirt/migration.h"
#endif

namespace bandsaw::ctl {

#ifdef BANDSAW_WITH_LIBVIRT

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Makes a file of what it is given, and names it.
constexpr const char* kPut = "umask 077; f=$(mktemp) && { cat >$f && echo $f || { rm -f $f; exit 1; }; }";

// A virtual GPU on its way.
struct Moving {
  std::string name;
  json view;          // as vgpud here says
  std::string saved;  // what its programs have, in a file: here,
  std::string there;  // and there
};

std::string local_uri(const std::string& uri) {
  const size_t ssh = uri.find("+ssh://");
  if (ssh == std::string::npos) return uri;
  const size_t path = uri.find('/', ssh + std::strlen("+ssh://"));
  return uri.substr(0, ssh) + "://" + (path == std::string::npos ? "" : uri.substr(path));
}

// The options of `vgpuctl create` by which another one becomes as this one is: shares, bounds, guards, its owner.
std::string creation_of(const json& view) {
  std::string line;
  const auto add = [&line](std::string name, const std::string& value) {
    std::replace(name.begin(), name.end(), '_', '-');
    line += fmt::format(" --{} {}", name, shell_word(value));
  };
  for (const auto& [name, value] : share_texts(view)) add(name, value);
  for (const char* const name : {"guard", "allow_machine_code", "clear_shared"}) {
    if (view.value(name, false)) add(name, "on");
  }
  for (const char* const name : {"resident", "host_memory"}) {
    if (const auto bytes = view.value(name, uint64_t{0}); bytes != 0) add(name, std::to_string(bytes));
  }
  if (const auto most = view.value("kernel_deadline_ms", int64_t{0}); most != 0) {
    add("kernel_deadline_ms", std::to_string(most));
  }
  if (view.contains("idle_suspend_s") && view["idle_suspend_s"].is_number()) {
    add("idle_suspend", json_text(view["idle_suspend_s"]));
  }
  if (const auto owner = view.value("owner", ""); !owner.empty()) add("owner", owner);
  const json limits = view.value("limits", json::object());
  for (const auto& [name, most] : limits.items()) add("limit", fmt::format("{}={}", name, json_text(most)));
  return line;
}

class Migration {
 public:
  Migration(const Options& options, OtherHost other) : options_(options), other_(std::move(other)) {}

  // An error says which step failed, and why; then all is as it was, or left_behind() says what is not.
  Status run();
  const std::string& left_behind() const { return left_behind_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // How long programs have waited, and how long of that libvirt took.
  std::chrono::duration<double> waited() const { return waited_; }
  std::chrono::duration<double> crossing() const { return crossing_; }
  const json& times() const { return times_; }  // of all steps, seconds
  json vgpus() const;

 private:
  using Step = std::function<Status()>;

  Status steps();
  Status find_vgpus();
  Status prepare(Moving* one);
  Status make_there(const Moving& one);
  Status leave();
  Status restore_here(const Moving& one) const;
  Status arrive();
  void tidy();
  // Whether a step that has failed may have done half of it.
  enum class Half { kIsNone, kIsTakenBack };
  // Does it, and remembers how it is taken back.
  Status take(const std::string& what, const Step& step, Step back, Half half = Half::kIsNone);
  void take_all_back();
  Status here(std::vector<std::string> words) const { return run_here(options_.run, words); }
  Status there(const std::string& line) const { return other_.run(line).status(); }
  std::vector<std::string> with_uri(std::vector<std::string> words) const;
  std::string there_line(const char* command, const Moving& one) const {
    return fmt::format("vgpuctl {} {} {} --live --connect {}", command, shell_word(one.name),
                       shell_word(options_.domain), shell_word(local_uri(options_.to)));
  }

  const Options& options_;
  const OtherHost other_;
  std::string folder_;
  std::vector<Moving> all_;
  struct Back {
    std::string what;
    Step step;
  };
  std::vector<Back> backs_;
  std::string left_behind_;
  std::vector<std::string> warnings_;
  std::chrono::duration<double> waited_{}, crossing_{};
  json times_ = json::array();
};

json Migration::vgpus() const {
  json names = json::array();
  for (const Moving& one : all_) names.push_back(one.name);
  return names;
}

std::vector<std::string> Migration::with_uri(std::vector<std::string> words) const {
  if (!options_.uri.empty()) words.insert(words.end(), {"--connect", options_.uri});
  return words;
}

Status Migration::take(const std::string& what, const Step& step, Step back, Half half) {
  const auto begin = Clock::now();
  const Status status = step();
  const std::chrono::duration<double> took = Clock::now() - begin;
  times_.push_back({{"step", what}, {"seconds", took.count()}});
  if (status.ok() || half == Half::kIsTakenBack) backs_.push_back({what, std::move(back)});
  return status.ok() ? status : Status::error(status.code(), "{}: {}", what, status.message());
}

void Migration::take_all_back() {
  for (; !backs_.empty(); backs_.pop_back()) {
    const Status status = backs_.back().step();
    if (status.ok()) continue;
    left_behind_ = fmt::format("'{}' could not be taken back: {}", backs_.back().what, status.message());
    return;
  }
}

Status Migration::find_vgpus() {
  const Reply reply = call(options_, "GET", "/v1/vgpus");
  if (const auto* refusal = std::get_if<Refusal>(&reply)) return Status::error(EIO, "{}", refusal->error);
  for (const json& view : std::get<json>(reply)) {
    if (view.value("domain", "") != options_.domain) continue;
    const auto name = view.value("name", "");
    all_.push_back({.name = name, .view = view, .saved = folder_ + "/" + name + ".save", .there = {}});
    const Status status = libvirt::check_unplug(options_.uri, options_.domain, name);
    if (!status.ok()) return status;
  }
  if (!all_.empty()) return {};
  return Status::error(ENOENT, "no virtual GPU of this host is attached to it; `virsh migrate` moves it");
}

Status Migration::make_there(const Moving& one) {
  const std::string line = "vgpuctl create " + shell_word(one.name) + creation_of(one.view);
  return take(
      fmt::format("making '{}' there", one.name), [&] { return there(line); },
      [this, name = shell_word(one.name)] { return there("vgpuctl destroy " + name + " --force"); });
}

// There it is suspended, so that nobody's program begins on it before it has what it is to have.
Status Migration::prepare(Moving* one) {
  const auto shown = other_.try_run("vgpuctl show --json " + shell_word(one->name));
  if (!shown.ok()) return shown.status();
  const json view = parse_json(shown.value().out);
  if (shown.value().exit == kNotFound) {
    if (Status status = make_there(*one); !status.ok()) return status;
  } else if (!shown.value().ok()) {
    return Status::error(EIO, "vgpuctl on the other host: {}{}", shown.value().out, shown.value().error);
  } else if (!view.is_object() || !view.value("domain", "").empty() || view.value("suspended", false)) {
    return Status::error(EBUSY, "'{}' is in use there: it has a domain, or is suspended", one->name);
  }
  const std::string name = shell_word(one->name);
  return take(
      fmt::format("suspending '{}' there", one->name), [&] { return there("vgpuctl suspend " + name); },
      [this, name] { return there("vgpuctl resume " + name); });
}

// Who does not come back where it was has ended.
Status Migration::restore_here(const Moving& one) const {
  const Status status = here({"restore", one.name, one.saved});
  return status.ok() ? status : here({"restore", one.name, one.saved, "--without-missing"});
}

// Each back of what is here leaves its programs as they were.
Status Migration::leave() {
  for (Moving& one : all_) {
    Status status = take(
        fmt::format("saving '{}'", one.name), [&] { return here({"save", one.name, one.saved, "--all"}); },
        [this, &one] { return restore_here(one); });
    if (!status.ok()) return status;
    status = take(
        fmt::format("sending what '{}' had", one.name),
        [&] {
          const auto put = other_.run(kPut, one.saved);
          if (put.ok()) one.there = put.value();
          return put.status();
        },
        [this, &one] { return there("rm -f " + shell_word(one.there)); });
    if (!status.ok()) return status;
  }
  for (const Moving& one : all_) {
    const auto words = [this, &one](const char* command) {
      return with_uri({command, one.name, options_.domain, "--live"});
    };
    const Status status = take(
        fmt::format("unplugging '{}'", one.name), [&] { return here(words("detach")); },
        [this, words] { return here(words("attach")); }, Half::kIsTakenBack);
    if (!status.ok()) return status;
  }
  return {};
}

Status Migration::arrive() {
  for (const Moving& one : all_) {
    const Status status = take(
        fmt::format("plugging '{}' in there", one.name), [&] { return there(there_line("attach", one)); },
        [this, &one] { return there(there_line("detach", one)); });
    if (!status.ok()) return status;
  }
  for (const Moving& one : all_) {
    const std::string line = fmt::format("vgpuctl restore {} {}{}", shell_word(one.name), shell_word(one.there),
                                         options_.without_missing ? " --without-missing" : "");
    const Status status = take(
        fmt::format("restoring '{}' there", one.name), [&] { return there(line); },
        [this, &one] {
          const Status saved =
              there(fmt::format("vgpuctl save {} {} --all", shell_word(one.name), shell_word(one.there)));
          return saved.ok() ? other_.run("cat " + shell_word(one.there), "", one.saved).status() : saved;
        });
    if (!status.ok()) return status;
  }
  return {};
}

Status Migration::steps() {
  if (Status status = find_vgpus(); !status.ok()) return status;
  for (Moving& one : all_) {
    if (Status status = prepare(&one); !status.ok()) return status;
  }
  const auto begin = Clock::now();
  if (Status status = leave(); !status.ok()) return status;
  const libvirt::MigrationWay way{options_.uri, options_.to, options_.migrate_uri};
  const auto crossing = Clock::now();
  const Status crossed = take(
      "migrating the domain", [&] { return libvirt::migrate(way, options_.domain); },
      [this, way] {
        const Status back = libvirt::migrate({way.to, way.from, options_.migrate_back_uri}, options_.domain);
        return back.ok() ? libvirt::undefine(way.to, options_.domain) : back;
      });
  if (!crossed.ok()) return crossed;
  crossing_ = Clock::now() - crossing;
  if (Status status = arrive(); !status.ok()) return status;
  waited_ = Clock::now() - begin;
  return {};
}

// It has all arrived: what is here is of no use any more.
void Migration::tidy() {
  const auto look = [this](const std::string& what, const Status& status) {
    if (!status.ok()) warnings_.push_back(fmt::format("{}: {}", what, status.message()));
  };
  for (const Moving& one : all_) {
    look("the file there", there("rm -f " + shell_word(one.there)));
    look("the virtual GPU here", here({"destroy", one.name, "--force"}));
  }
  look("its definition here", libvirt::undefine(options_.uri, options_.domain));
}

Status Migration::run() {
  std::string folder = options_.folder + "/bandsaw-XXXXXX";
  if (!::mkdtemp(folder.data())) return Status::system("{}", folder);
  folder_ = folder;
  Status status = steps();
  if (status.ok()) {
    tidy();
  } else {
    take_all_back();
  }
  if (!left_behind_.empty()) {
    left_behind_ += fmt::format("; what its programs had is in {}", folder_);
    return status;
  }
  for (const Moving& one : all_) ::unlink(one.saved.c_str());
  ::rmdir(folder_.c_str());
  return status;
}

}  // namespace

int migrate(const Options& options) {
  // Half of it is worse than all or nothing: what it starts ignores them too.
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) ::signal(one, SIG_IGN);
  const auto command = options.remote.empty() ? OtherHost::command_of(options.to) : Result<std::string>(options.remote);
  if (!command.ok()) return print_wrong_usage(options, command.status().message());
  Migration migration(options, OtherHost(command.value()));
  const Status status = migration.run();
  if (!status.ok()) {
    return print_refusal({kRefused, fmt::format("domain '{}' is not migrated: {}", options.domain, status.message()),
                          migration.left_behind().empty() ? "all is as it was" : migration.left_behind()},
                         options.json);
  }
  for (const std::string& warning : migration.warnings()) fmt::print(stderr, "vgpuctl: it is left: {}\n", warning);
  if (options.json) {
    fmt::print("{}\n", json_text(json{{"domain", options.domain},
                                      {"vgpus", migration.vgpus()},
                                      {"waited_seconds", migration.waited().count()},
                                      {"steps", migration.times()}}));
  } else {
    fmt::print(
        "domain {} runs there, with {}; its programs on the virtual GPU waited for {:.2f} s, {:.2f} s of them for "
        "libvirt\n",
        options.domain, fmt::join(migration.vgpus().get<std::vector<std::string>>(), ", "), migration.waited().count(),
        migration.crossing().count());
  }
  return kOk;
}

#else

int migrate(const Options& options) { return refuse_without_libvirt(options.json); }

#endif

}  // namespace bandsaw::ctl
