// timing: how long kernels take on a model of a GPU, by what the software device has recorded of them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "memory/base/unique_fd.h"
#include "tools/timing/report.h"

namespace {

using namespace bandsaw;
using namespace bandsaw::soft::timing;

constexpr uint64_t kFileMost = uint64_t{256} << 20;
constexpr const char* kUsage =
    R"(usage: timing [OPTION...] FILE|FOLDER...

Replays what the software device has recorded of kernels (tools/guest-run --direct --timing) on a model of a GPU, and
prints cycles, why warp schedulers did not issue, and hit rates, by kernel.

  --gpu NAME        h200 (as it comes) or gtx480
  --policy NAME     of warp schedulers: gto (as it comes), lrr, two-level, ccws, dyncta, elf
  --requeue N       accesses that L1 refuses wait in a queue of N, others pass them (NewCAR); 0: none
  --prefetch N      the next line of code is fetched while fewer misses than N are on their way; 0: never
  --points N        program points that ELF's hardware has; 0: as many as there are
  --l1 KIB          of each SM
  --cycles N        of one launch, at most
  --without TEXT    leaves kernels out whose name has this text
  --json            JSON instead of a table
)";

struct Options {
  Machine machine = h200();
  Scheduling scheduling;
  uint64_t cycles = kMostCycles;
  uint32_t l1_kib = 0;
  bool json = false, help = false;
  std::string without;
  std::vector<std::string> places;
};

uint64_t number(const std::string& option, const std::string& text, uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most)
    throw std::invalid_argument(option + " " + text + ": not a number from 0 to " + std::to_string(most));
  return value;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void set(Options* options, const std::string& option, const std::string& value) {
  constexpr uint64_t kSlots = 4096, kCycles = uint64_t{1} << 40, kL1 = 256;
  const auto small = [&](uint64_t most) { return static_cast<uint32_t>(number(option, value, most)); };
  if (option == "--gpu") {
    if (!find_machine(value, &options->machine))
      throw std::invalid_argument("no GPU '" + value + "'; there are " + list(machine_names()));
  } else if (option == "--policy") {
    if (!make_warp_policy(value))
      throw std::invalid_argument("no policy '" + value + "'; there are " + list(warp_policy_names()));
    options->scheduling.policy = value;
  } else if (option == "--requeue") {
    options->scheduling.requeue_slots = small(kSlots);
  } else if (option == "--prefetch") {
    options->scheduling.prefetch_threshold = small(kSlots);
  } else if (option == "--points") {
    options->scheduling.point_slots = small(kSlots);
  } else if (option == "--l1") {
    options->l1_kib = small(kL1);
  } else if (option == "--cycles") {
    options->cycles = number(option, value, kCycles);
  } else if (option == "--without") {
    options->without = value;
  } else {
    throw std::invalid_argument("no option " + option);
  }
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      options.json = true;
    } else if (word == "--help" || word == "-h") {
      options.help = true;
    } else if (!word.starts_with("--")) {
      options.places.push_back(word);
    } else if (++i < argc) {
      set(&options, word, argv[i]);
    } else {
      throw std::invalid_argument(word + " needs a value");
    }
  }
  if (options.l1_kib) options.machine.l1d.bytes = options.l1_kib << 10;
  if (options.places.empty() && !options.help) throw std::invalid_argument("no file is named");
  return options;
}

std::vector<std::string> files_of(const std::string& place) {
  if (!std::filesystem::is_directory(place)) return {place};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(place)) files.push_back(entry.path());
  return files;
}

// Runners write them: a file is what it is when it is opened, and no larger than they may be.
std::vector<char> read(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat known = {};
  if (!file || ::fstat(file.get(), &known) != 0 || !S_ISREG(known.st_mode))
    throw std::runtime_error(path + ": no file that can be read");
  if (static_cast<uint64_t>(known.st_size) > kFileMost) throw std::runtime_error(path + ": too large for a trace");
  std::vector<char> bytes(static_cast<size_t>(known.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

// In the order of kernels' names and launches, whatever the files are called.
std::vector<std::pair<std::pair<std::string, uint64_t>, std::string>> ordered(const Options& options) {
  std::vector<std::pair<std::pair<std::string, uint64_t>, std::string>> found;
  for (const std::string& place : options.places) {
    for (const std::string& file : files_of(place)) {
      std::string error;
      const auto launch = decode(read(file), &error);
      if (launch && !options.without.empty() && launch->kernel.find(options.without) != std::string::npos) continue;
      if (launch)
        found.push_back({{launch->kernel, launch->launch}, file});
      else
        std::fprintf(stderr, "timing: %s: %s; left out\n", file.c_str(), error.c_str());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

int run(const Options& options) {
  std::vector<tools::KernelTiming> kernels;
  for (const auto& [place, file] : ordered(options)) {
    std::string error;
    const auto launch = decode(read(file), &error);
    if (launch) tools::add(*launch, simulate(*launch, options.machine, options.scheduling, options.cycles), &kernels);
  }
  if (kernels.empty()) {
    std::fprintf(stderr, "timing: nothing was recorded\n");
    return EXIT_FAILURE;
  }
  const std::string text =
      options.json ? tools::json(kernels) : tools::table(options.machine, options.scheduling.policy, kernels);
  std::fputs(text.c_str(), stdout);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    if (!options.help) return run(options);
    std::fputs(kUsage, stdout);
    return EXIT_SUCCESS;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "timing: %s\n%s", error.what(), kUsage);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "timing: %s\n", error.what());
  }
  return EXIT_FAILURE;
}
