// vgpuctl's commands. Each prints what it did and returns the exit code.
#pragma once

#include <optional>
#include <string>

namespace bandsaw::ctl {

struct Options {
  bool json = false;
  std::string run;  // folder of control.sock
  std::string name;
  std::string memory, device, direct_mode, direct_group;  // empty: not given
  std::optional<unsigned> compute, copy;
  bool force = false;
  std::string domain, uri;
  bool record_only = false;  // attach and detach: leave libvirt alone
};

int create(const Options& options);
int destroy(const Options& options);
int list(const Options& options);
int show(const Options& options);
int set(const Options& options);
int xml(const Options& options);
int attach(const Options& options);
int detach(const Options& options);
int status(const Options& options);
int shutdown(const Options& options);

}  // namespace bandsaw::ctl
