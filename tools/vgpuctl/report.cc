// report: what a virtual GPU used of what it was promised.
#include <fmt/format.h>

#include "backend/control/http_client.h"
#include "memory/base/json.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/report_table.h"

namespace bandsaw::ctl {

using nlohmann::json;

int report(const Options& options) {
  const auto hours = parse_hours(options.last);
  if (!hours.ok()) {
    return print_refusal({kUsage, hours.status().message(), "write hours or days, at most 31: 12h, 7d"}, options.json);
  }
  const Reply reply =
      call(options, "GET", fmt::format("/v1/reports/{}?hours={}", url_escaped(options.name), hours.value()));
  if (const Refusal* refusal = std::get_if<Refusal>(&reply)) return print_refusal(*refusal, options.json);
  const json& found = std::get<json>(reply);
  if (options.json) {
    fmt::print("{}\n", json_text(found, 2));
  } else {
    print_table(report_rows(found));
  }
  return kOk;
}

}  // namespace bandsaw::ctl
