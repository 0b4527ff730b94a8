// vgpuctl's commands. Each prints what it did and returns the exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bandsaw::ctl {

struct Options {
  bool json = false;
  std::string called = "vgpuctl";  // the command, as it is typed
  std::string run;                 // folder of control.sock
  std::string name;
  std::string memory, resident, host_memory, device, direct_mode, direct_group;  // empty: not given
  std::optional<int64_t> compute, copy, cap, reserve, priority, latency_us, kernel_deadline_ms, sms;
  std::string idle_suspend;         // seconds, never or default; empty: not given
  std::vector<std::string> limits;  // NAME=NUMBER or NAME=default
  std::optional<bool> guard, allow_machine_code, clear_shared;
  std::optional<std::string> owner;           // empty: anybody
  std::string sharing;                        // empty: as it is
  std::optional<std::string> group;           // kNoGroup: in none
  std::string policy, queues, planning_mode;  // of all devices; empty: as they are
  bool force = false;
  std::vector<std::string> columns;  // of list; empty: all
  bool no_header = false;
  std::string domain, uri;
  std::string hypervisor = "libvirt";  // or "xen": whose domain it is
  bool xl = false;                     // xml: for a configuration of xl's
  bool record_only = false;            // leave libvirt alone
  bool move = false;                   // drain: those on it too
  bool live = false;                   // also now, where the domain runs
  double interval = 1;                 // seconds
  unsigned count = 0;                  // of tables; 0: until it is ended
  double seconds = 5;                  // of a trace
  std::string output, file;            // files
  bool all = false;                    // of save
  bool without_missing = false;        // of restore
  std::string to, remote;              // of migrate: libvirt's URI of the other host, and how commands are run there
  std::string migrate_uri, migrate_back_uri;  // where emulators meet
  std::string folder = "/var/tmp";            // for what programs have meanwhile
  std::string last = "24h";                   // how far a report looks back
  std::string shell;                          // whose completion
  std::string vgpu, size;                     // of a shared segment: whose it is or who is meant, bytes
  bool read_write = false;                    // a grant is for writing too
  bool install = false;                       // hook: put it where libvirt looks
  unsigned wait = 30;                         // hook: seconds until vgpud and sessions answer
  std::string hooks = "/etc/libvirt/hooks";
};

int create(const Options& options);
int destroy(const Options& options);
int list(const Options& options);
int show(const Options& options);
int set(const Options& options);
int show_scheduler(const Options& options);
int set_scheduler(const Options& options);
int suspend(const Options& options);
int resume(const Options& options);
int save(const Options& options);     // what a suspended one has, in a file
int restore(const Options& options);  // the same, back
int move(const Options& options);     // to another device
int drain(const Options& options);    // of a device
int undrain(const Options& options);  // the same, back in service
int migrate(const Options& options);  // a domain, to another host
int xml(const Options& options);
int attach(const Options& options);
int detach(const Options& options);
int status(const Options& options);
int shutdown(const Options& options);
int top(const Options& options);
int trace(const Options& options);
int report(const Options& options);
int hook(const Options& options);
int completion(const Options& options);
int doctor(const Options& options);
int create_segment(const Options& options);
int grant_segment(const Options& options);
int revoke_segment(const Options& options);
int list_segments(const Options& options);
int destroy_segment(const Options& options);

}  // namespace bandsaw::ctl
