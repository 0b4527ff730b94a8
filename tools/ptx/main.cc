// ptx: what can be done with the kernels of a file, and what they look like afterwards.
#include <cstdio>
#include <exception>
#include <set>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "tools/ptx/check.h"
#include "tools/ptx/input.h"
#include "tools/ptx/report.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/slice.h"

namespace {

using namespace bandsaw;

constexpr const char* kUsage =
    R"(usage: ptx [--json] FILE...
       ptx (--slice [--count] | --persistent) KERNEL [--one-dimensional] FILE
       ptx --check [--ptxas PATH] [--target sm_90] FILE...
       ptx --guard FILE
       ptx --ptx FILE

Shows for each kernel of the files whether Bandsaw can cut it into grid slices or run it in persistent blocks, why not,
whether it may be run again, and what instructions it is made of. A FILE is PTX text, a fatbin, or an executable or
shared library that holds some.

  --json               the same as JSON
  --slice KERNEL       prints the kernel's sliced variant
  --count              that variant with counters of what its threads do
  --persistent KERNEL  prints its persistent variant
  --one-dimensional    for grids with y = z = 1 only: no divisions
  --check              compiles every rewrite of every kernel with ptxas
  --guard              prints the modules with all kernels guarded, for an example of an area
  --ptx                prints the PTX found
)";

struct Options {
  bool json = false, ptx = false, check = false, guard = false, help = false;
  ptx::SlicingOptions slicing;
  std::string slice, persistent, ptxas = "ptxas", target;
  std::vector<std::string> files;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    auto value = [&] {
      if (++i >= argc) throw std::invalid_argument(word + " needs a value");
      return std::string(argv[i]);
    };
    if (word == "--json")
      options.json = true;
    else if (word == "--ptx")
      options.ptx = true;
    else if (word == "--check")
      options.check = true;
    else if (word == "--guard")
      options.guard = true;
    else if (word == "--ptxas")
      options.ptxas = value();
    else if (word == "--target")
      options.target = value();
    else if (word == "--one-dimensional")
      options.slicing.one_dimensional = true;
    else if (word == "--count")
      options.slicing.counts = true;
    else if (word == "--slice")
      options.slice = value();
    else if (word == "--persistent")
      options.persistent = value();
    else if (word == "--help" || word == "-h")
      options.help = true;
    else if (word.size() > 1 && word[0] == '-')
      throw std::invalid_argument("there is no option " + word);
    else
      options.files.push_back(word);
  }
  if (!options.help && options.files.empty()) throw std::invalid_argument("which file? See --help");
  return options;
}

// A kernel by its name, or the only one whose name contains what was given.
std::string find_kernel(const ptx::Program& program, const std::string& wanted) {
  std::set<std::string> like;
  for (const std::string_view name : program.kernels()) {
    if (name == wanted) return wanted;
    if (name.find(wanted) != name.npos) like.emplace(name);
  }
  return like.size() == 1 ? *like.begin() : "";
}

template <class Made, class Result>
void print_made(const Result& result, const std::string& kernel) {
  if (const auto* refusal = std::get_if<ptx::Refusal>(&result))
    throw std::runtime_error(kernel + " stays as it is: it " + refusal->reason);
  std::fputs(std::get<Made>(result).text.c_str(), stdout);
}

void print_rewritten(const Options& options) {
  const std::string& wanted = options.slice.empty() ? options.persistent : options.slice;
  bool printed = false;
  auto one = [&](tools::FoundModule found) {
    if (printed) return;
    const ptx::Program program(std::move(found.module));
    const std::string kernel = find_kernel(program, wanted);
    if (kernel.empty()) return;
    printed = true;
    if (options.slice.empty())
      print_made<ptx::PersistentKernel>(ptx::persistent(program, kernel, options.slicing), kernel);
    else
      print_made<ptx::SlicedKernel>(ptx::slice(program, kernel, options.slicing), kernel);
  };
  for (const std::string& file : options.files) tools::read_input(file, one);
  if (!printed) throw std::runtime_error("no kernel, or more than one, has '" + wanted + "' in its name");
}

void print_report(const Options& options) {
  std::vector<tools::Row> rows;
  std::vector<std::string> notes;
  for (const std::string& file : options.files) {
    const std::string where = options.files.size() > 1 ? file + ": " : "";
    auto one = [&](tools::FoundModule found) {
      const ptx::Program program(std::move(found.module));
      for (const std::string_view kernel : program.kernels())
        rows.push_back({where + found.from, ptx::analyse(program, kernel)});
    };
    for (const std::string& note : tools::read_input(file, one)) notes.push_back(where + note);
  }
  if (options.json) {
    std::fputs(tools::json(rows, notes).c_str(), stdout);
    return;
  }
  if (rows.empty())
    for (const std::string& note : notes) std::printf("%s\n", note.c_str());
  std::fputs(tools::table(rows).c_str(), stdout);
}

void print_guarded(const Options& options) {
  auto one = [](const tools::FoundModule& found) {
    const auto made = ptx::guard(found.module, tools::kExampleArea);
    if (const auto* refusal = std::get_if<ptx::Refusal>(&made))
      throw std::runtime_error(found.from + " cannot be guarded: it " + refusal->reason);
    std::printf("// %s\n%s\n", found.from.c_str(), std::get<std::string>(made).c_str());
  };
  for (const std::string& file : options.files) tools::read_input(file, one);
}

void print_ptx(const Options& options) {
  auto one = [](const tools::FoundModule& found) {
    std::printf("// %s\n%s\n", found.from.c_str(), ptx::print(found.module).c_str());
  };
  for (const std::string& file : options.files) tools::read_input(file, one);
}

bool print_check(const Options& options) {
  bool good = true;
  for (const std::string& file : options.files) {
    const tools::CheckResult result = tools::check(file, options.ptxas, options.target);
    std::printf("%s: %zu kernels, %zu rewrites compiled, %zu refused, %zu failed\n", file.c_str(), result.kernels,
                result.compiled, result.refused, result.failures.size());
    for (const std::string& failure : result.failures) std::printf("  %s\n", failure.c_str());
    good &= result.failures.empty();
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    if (options.help)
      std::fputs(kUsage, stdout);
    else if (options.check)
      return print_check(options) ? 0 : 1;
    else if (options.guard)
      print_guarded(options);
    else if (options.ptx)
      print_ptx(options);
    else if (!options.slice.empty() || !options.persistent.empty())
      print_rewritten(options);
    else
      print_report(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ptx: %s\n", error.what());
    return 1;
  }
}
