// Analyses of kernels as a table for people, or as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/analysis.h"

namespace bandsaw::tools {

struct Row {
  std::string from;  // the module
  ptx::Analysis analysis;
};

std::string table(const std::vector<Row>& rows);
// {"kernels": [...], "notes": [...], "summary": {"kernels", "sliceable", "persistent", "idempotent"}}
std::string json(const std::vector<Row>& rows, const std::vector<std::string>& notes);

}  // namespace bandsaw::tools
