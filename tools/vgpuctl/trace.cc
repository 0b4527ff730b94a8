// trace: records who had which engine when.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "memory/base/json.h"
#include "tools/vgpuctl/chrome_trace.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/signals.h"

namespace bandsaw::ctl {

using nlohmann::json;

namespace {

void learn_names(const Options& options, ProcessNames* names) {
  const Reply views = call(options, "GET", "/v1/vgpus");
  if (const json* found = std::get_if<json>(&views)) add_names(*found, names);
}

// To standard output, or to `file`, which loses what it had.
int deliver(const Options& options, const json& content, const ProcessNames& names, std::ofstream* file) {
  if (options.output == "-") {
    std::cout << chrome_trace(content, names) << std::flush;
    if (std::cout) return kOk;
    return print_refusal({kRefused, "cannot write the trace", "make room where the output goes"}, false);
  }
  file->close();
  file->open(options.output, std::ios::trunc);
  *file << chrome_trace(content, names);
  file->close();
  if (!*file) {
    return print_refusal(
        {kRefused, fmt::format("cannot write {}: {}", options.output, std::strerror(errno)), "make room on that disk"},
        options.json);
  }
  const size_t slices = content.value("records", json::array()).size();
  const auto lost = content.value("lost", uint64_t{0});
  if (options.json) {
    fmt::print("{}\n", json_text(json{{"file", options.output}, {"time_slices", slices}, {"lost", lost}}));
  } else {
    fmt::print("{} time slices are in {}; open it in https://ui.perfetto.dev\n", slices, options.output);
    if (lost > 0) fmt::print("{} more found no room: record for a shorter time\n", lost);
  }
  return kOk;
}

}  // namespace

int trace(const Options& options) {
  const bool to_stdout = options.output == "-";
  const bool is_new = !to_stdout && ::access(options.output.c_str(), F_OK) != 0;
  std::ofstream file;
  if (!to_stdout) file.open(options.output, std::ios::app);  // what is there stays until there is something else
  if (!file) {
    return print_refusal({kRefused, fmt::format("cannot write {}: {}", options.output, std::strerror(errno)),
                          "name a file in a folder that you may write"},
                         options.json);
  }
  Signals signals;
  const Reply started = call(options, "POST", "/v1/trace/start", {{"seconds", options.seconds}});
  if (const Refusal* refusal = std::get_if<Refusal>(&started)) {
    if (is_new) ::unlink(options.output.c_str());
    return print_refusal(*refusal, options.json);
  }
  ProcessNames names;
  learn_names(options, &names);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(options.seconds * 1e9));
  while (signals.wait(end, false) == Signals::Event::kResized) {
  }
  // Of those that begin while it is recorded too; one that both begins and ends is called by its slot.
  learn_names(options, &names);
  const Reply taken = call(options, "POST", "/v1/trace/take", std::get<json>(started));
  if (const Refusal* refusal = std::get_if<Refusal>(&taken)) return print_refusal(*refusal, options.json);
  return deliver(options, std::get<json>(taken), names, &file);
}

}  // namespace bandsaw::ctl
