#include "tools/ptx/check.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>
#include <variant>

#include "tools/ptx/input.h"
#include "vgpu-sched/ptx/clear.h"
#include "vgpu-sched/ptx/guard.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::tools {
namespace {

class Checker {
 public:
  Checker(std::string ptxas, std::string target) : ptxas_(std::move(ptxas)), target_(std::move(target)) {
    folder_ = (std::filesystem::temp_directory_path() / "bandsaw-ptx-XXXXXX").string();
    if (!mkdtemp(folder_.data())) throw std::runtime_error(std::string("no temporary folder: ") + std::strerror(errno));
  }
  ~Checker() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  void module(FoundModule found) {
    const std::string target = found.module.targets.empty() ? "" : found.module.targets[0];
    guarded(found, target);
    const ptx::Program program(std::move(found.module));
    for (const std::string_view kernel : program.kernels()) {
      ++result_.kernels;
      const std::string what = found.from + ", " + std::string(kernel) + ", ";
      one<ptx::SlicedKernel>(ptx::slice(program, kernel), target, what + "sliced");
      one<ptx::SlicedKernel>(ptx::slice(program, kernel, {true}), target, what + "sliced in one dimension");
      one<ptx::SlicedKernel>(ptx::slice(program, kernel, {.counts = true}), target, what + "sliced and counted");
      one<ptx::PersistentKernel>(ptx::persistent(program, kernel), target, what + "persistent");
    }
  }
  CheckResult result() { return std::move(result_); }

 private:
  // The module, and grid slices of what it becomes.
  void guarded(const FoundModule& found, const std::string& target) {
    const auto made = ptx::guard(found.module, kExampleArea);
    const auto* text = std::get_if<std::string>(&made);
    if (!text) {
      ++result_.refused;
      return;
    }
    compiled(*text, target, found.from + ", guarded");
    const auto cleared = ptx::clear_shared(found.module);
    if (const auto* module = std::get_if<ptx::Module>(&cleared))
      compiled(ptx::print(*module), target, found.from + ", clears its shared memory");
    const ptx::Program program(ptx::parse(*text));
    for (const std::string_view kernel : program.kernels())
      one<ptx::SlicedKernel>(ptx::slice(program, kernel), target,
                             found.from + ", " + std::string(kernel) + ", guarded and sliced");
  }

  template <class Made, class Result>
  void one(const Result& made, const std::string& target, const std::string& what) {
    const auto* kernel = std::get_if<Made>(&made);
    if (!kernel) {
      ++result_.refused;
      return;
    }
    compiled(kernel->text, target, what);
  }

  void compiled(const std::string& text, const std::string& target, const std::string& what) {
    const int status = compile(text, target_.empty() ? target : target_);
    if (status == 127) throw std::runtime_error("cannot run " + ptxas_ + ": name it with --ptxas");
    if (status == 0)
      ++result_.compiled;
    else
      result_.failures.push_back(what + ": ptxas exit status " + std::to_string(status));
  }

  int compile(const std::string& text, const std::string& target) const {
    const std::string input = folder_ + "/text.ptx", output = folder_ + "/text.cubin", option = "-arch=" + target;
    std::ofstream(input) << text;
    const pid_t child = fork();
    if (child == 0) {
      execlp(ptxas_.c_str(), "ptxas", "-c", option.c_str(), input.c_str(), "-o", output.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) throw std::runtime_error(std::strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string ptxas_, target_, folder_;
  CheckResult result_;
};

}  // namespace

CheckResult check(const std::string& file, const std::string& ptxas, const std::string& target) {
  Checker checker(ptxas, target);
  read_input(file, [&](FoundModule found) { checker.module(std::move(found)); });
  return checker.result();
}

}  // namespace bandsaw::tools
