// ptxas as a judge of PTX text; it is there where the CUDA Toolkit is installed.
#pragma once

#include <elf.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
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

// The machine code in a file that ptxas wrote: of each function, by the name of its section.
inline std::map<std::string, std::string> code_of(const std::filesystem::path& cubin) {
  std::ifstream file(cubin, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Elf64_Ehdr header{};
  if (bytes.size() < sizeof header) return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto section = [&](size_t index) {
    Elf64_Shdr found{};
    std::memcpy(&found, bytes.data() + header.e_shoff + index * header.e_shentsize, sizeof found);
    return found;
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  std::map<std::string, std::string> code;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr found = section(i);
    const std::string name = bytes.data() + names.sh_offset + found.sh_name;
    if (name.starts_with(".text.")) code[name] = bytes.substr(found.sh_offset, found.sh_size);
  }
  return code;
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
