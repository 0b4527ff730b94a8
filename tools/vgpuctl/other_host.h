// Commands on this host and on another one, which vgpuctl migrate puts together.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::ctl {

// How a command ended, and what it said: on stdout, and on stderr.
struct Said {
  int exit = 0;
  std::string out, error;
  bool ok() const { return exit == 0; }
};

// A program with these words. `input`, `output`: files that are its stdin and stdout; empty: none, and what it says.
// Errors: it cannot be started, or a file cannot be opened.
Result<Said> run(const std::vector<std::string>& words, const std::string& input = "", const std::string& output = "");

// This vgpuctl, with the folder of the same vgpud's sockets. An error has its words.
Status run_here(const std::string& run_folder, const std::vector<std::string>& words);

// One word of a shell's.
std::string shell_word(const std::string& word);

// Another host, by a command of the caller's that runs the command line which is put after it as its last word, there,
// in a shell: "ssh web2".
class OtherHost {
 public:
  explicit OtherHost(std::string command) : command_(std::move(command)) {}
  // ssh with the user and the host of libvirt's URI. EINVAL: it names none.
  static Result<std::string> command_of(const std::string& uri);

  // An error: it cannot be run, or ended with another status than 0: in its words.
  Result<std::string> run(const std::string& line, const std::string& input = "", const std::string& output = "") const;
  // As it ended.
  Result<Said> try_run(const std::string& line, const std::string& input = "", const std::string& output = "") const;

 private:
  std::string command_;
};

}  // namespace bandsaw::ctl
