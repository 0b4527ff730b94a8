// ptxas as a judge of PTX text; it is there where the CUDA Toolkit is installed.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace bandsaw::ptx {

inline bool have_ptxas() { return access(PTXAS, X_OK) == 0; }

// The exit status of ptxas; 0: it made code for `target` ("sm_90").
inline int assemble(const std::string& target, const std::filesystem::path& input,
                    const std::filesystem::path& output) {
  const std::string architecture = "-arch=" + target;
  const pid_t child = fork();
  if (child == 0) {
    execl(PTXAS, "ptxas", "-c", architecture.c_str(), input.c_str(), "-o", output.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A folder for one test's files.
class ScratchFolder {
 public:
  ScratchFolder() : path_((std::filesystem::temp_directory_path() / "bandsaw-ptxas-XXXXXX").string()) {
    if (!mkdtemp(path_.data())) path_.clear();
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::filesystem::path operator/(const char* name) const { return std::filesystem::path(path_) / name; }

 private:
  std::string path_;
};

// True, too, where there is no ptxas.
inline bool ptxas_takes(const std::string& text, const std::string& target) {
  if (!have_ptxas()) return true;
  const ScratchFolder here;
  std::ofstream(here / "text.ptx") << text;
  return assemble(target, here / "text.ptx", here / "text.cubin") == 0;
}

}  // namespace bandsaw::ptx
