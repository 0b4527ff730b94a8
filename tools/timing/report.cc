#include "tools/timing/report.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace bandsaw::tools {
namespace {

using soft::timing::Timing;

constexpr size_t kNameMost = 40;

// Without arguments, and no control characters: a program chose the name.
std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> found(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                     free);
  std::string text = status == 0 && found ? found.get() : name;
  if (status == 0) text = text.substr(0, text.find('('));
  if (text.size() > kNameMost) text = text.substr(0, kNameMost - 3) + "...";
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else
      out += byte < 0x20 || byte >= 0x7f ? fmt::format("\\u{:04x}", byte) : std::string(1, c);
  }
  return out + '"';
}

double part(uint64_t of, uint64_t all) { return all ? 100.0 * static_cast<double>(of) / static_cast<double>(all) : 0; }

// "-" where nothing was asked for.
std::string rate(uint64_t hits, uint64_t all) { return all ? fmt::format("{:.1f}", part(hits, all)) : "-"; }

// For each SM that is simulated.
double per_cycle(const KernelTiming& kernel, uint64_t sms) {
  return kernel.sum.cycles ? static_cast<double>(kernel.sum.sm.instructions) /
                                 static_cast<double>(kernel.sum.cycles * std::max<uint64_t>(sms, 1))
                           : 0;
}

using Row = std::vector<std::string>;

Row row_of(const KernelTiming& kernel, uint64_t sms) {
  const auto& stalls = kernel.sum.sm.stalls;
  const uint64_t all = kernel.sum.scheduler_cycles;
  Row row{readable(kernel.kernel), fmt::format("{}", kernel.launches), fmt::format("{:.0f}", kernel.sum.launch_cycles),
          fmt::format("{:.2f}", per_cycle(kernel, sms))};
  for (const uint64_t one :
       {stalls.conflict, stalls.dependency, stalls.fetch, stalls.barrier, stalls.other, kernel.sum.sm.empty})
    row.push_back(fmt::format("{:.1f}", part(one, all)));
  row.push_back(rate(kernel.sum.accesses.l1_hits, kernel.sum.accesses.l1_reads));
  row.push_back(rate(kernel.sum.memory.l2_hits, kernel.sum.memory.l2_reads));
  row.push_back(rate(kernel.sum.memory.row_hits, kernel.sum.memory.dram_lines));
  return row;
}

// The first column to the left, numbers to the right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += "\n";
  }
  return text;
}

}  // namespace

void add(const soft::timing::LaunchTrace& launch, const Timing& timing, std::vector<KernelTiming>* kernels) {
  auto known = std::find_if(kernels->begin(), kernels->end(),
                            [&](const KernelTiming& one) { return one.kernel == launch.kernel; });
  if (known == kernels->end()) {
    kernels->emplace_back().kernel = launch.kernel;
    known = kernels->end() - 1;
    known->points = soft::timing::ProgramPoints(launch.code, 0).found();
  }
  ++known->launches;
  known->grid_blocks += launch.blocks();
  soft::timing::add(timing, &known->sum);
}

std::string table(const soft::timing::Machine& machine, const std::string& policy,
                  const std::vector<KernelTiming>& kernels) {
  std::vector<Row> rows{{"kernel", "launches", "cycles", "issued/cycle", "conflict %", "memory %", "fetch %",
                         "barrier %", "other %", "empty %", "L1 %", "L2 %", "row %"}};
  for (const KernelTiming& kernel : kernels) rows.push_back(row_of(kernel, machine.part.sms));
  std::string text = fmt::format("{} at {} MHz, {} of {} SMs simulated, policy {}\n", machine.name, machine.clock_mhz,
                                 machine.part.sms, machine.part.total_sms, policy);
  text += aligned(rows);
  for (const KernelTiming& kernel : kernels) {
    const std::string name = readable(kernel.kernel);
    if (kernel.sum.cut)
      text += fmt::format("{}: not all that its blocks did was recorded or simulated; cycles are of a part\n", name);
    if (kernel.sum.oversized) text += fmt::format("{}: an SM of this GPU has no room for one of its blocks\n", name);
  }
  return text;
}

std::string json(const std::vector<KernelTiming>& kernels) {
  std::string text = "[";
  for (const KernelTiming& one : kernels) {
    const auto& sum = one.sum;
    text += fmt::format(
        R"({}{{"kernel": {}, "launches": {}, "points": {}, "blocks": {}, "grid_blocks": {}, "cut": {}, "oversized": {}, )"
        R"("cycles": {}, "launch_cycles": {:.0f}, "instructions": {}, "thread_instructions": {}, "scheduler_cycles": {}, )"
        R"("conflict": {}, "memory": {}, "fetch": {}, "barrier": {}, "other": {}, "empty": {}, "look_ups": {}, )"
        R"("fetches": {}, "fetch_hits": {}, "prefetches": {}, "l1_reads": {}, "l1_hits": {}, "refused": {}, )"
        R"("requeued": {}, "l2_reads": {}, "l2_hits": {}, "dram_lines": {}, "row_hits": {}, "dram_sectors": {}}})",
        text.size() > 1 ? ",\n" : "", quoted(one.kernel), one.launches, one.points, sum.blocks, one.grid_blocks,
        sum.cut, sum.oversized, sum.cycles, sum.launch_cycles, sum.sm.instructions, sum.sm.thread_instructions,
        sum.scheduler_cycles, sum.sm.stalls.conflict, sum.sm.stalls.dependency, sum.sm.stalls.fetch,
        sum.sm.stalls.barrier, sum.sm.stalls.other, sum.sm.empty, sum.sm.look_ups, sum.sm.fetches, sum.sm.fetch_hits,
        sum.sm.prefetches, sum.accesses.l1_reads, sum.accesses.l1_hits, sum.accesses.refused, sum.accesses.requeued,
        sum.memory.l2_reads, sum.memory.l2_hits, sum.memory.dram_lines, sum.memory.row_hits, sum.memory.dram_sectors);
  }
  return text + "]\n";
}

}  // namespace bandsaw::tools
