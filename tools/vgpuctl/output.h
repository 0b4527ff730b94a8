// What vgpuctl prints: JSON or text in columns; refusals with a hint.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::ctl {

// Documented in --help.
enum Exit { kOk = 0, kRefused = 1, kUsage = 2, kNoDaemon = 3, kNotFound = 4 };

struct Refusal {
  Exit exit = kRefused;
  std::string error, hint;
};

// To stderr, or as {"error", "hint"} to stdout with `json`. Returns the exit code.
int print_refusal(const Refusal& refusal, bool json);
int refuse_without_libvirt(bool json);

// Columns as wide as their widest cell; the first row is the heading.
void print_table(const std::vector<std::vector<std::string>>& rows);

// The rows of a table, each without a line feed.
std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows);
// "8.0 GiB of memory, compute 30 %, ..."; what is not said has its ordinary value.
std::string shares_line(const nlohmann::json& view);
// How devices are scheduled (GET /v1/scheduler).
void print_scheduler(const nlohmann::json& scheduler);
// What vgpud has to say beside.
void print_notes(const nlohmann::json& view);

// By name, vm-2 before vm-10.
bool name_less(const nlohmann::json& a, const nlohmann::json& b);
// What `list` shows of the virtual GPUs, under its headings.
std::vector<std::vector<std::string>> list_rows(nlohmann::json views);
// Those columns, by their headings in letters of any case. EINVAL, with the headings that there are.
Result<std::vector<std::vector<std::string>>> chosen_columns(const std::vector<std::vector<std::string>>& rows,
                                                             const std::vector<std::string>& names);
void print_vgpu(const nlohmann::json& view);
void print_status(const nlohmann::json& status);

}  // namespace bandsaw::ctl
