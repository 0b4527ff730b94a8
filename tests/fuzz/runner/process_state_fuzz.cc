// What a runner reads of the objects that another one had: any bytes. What must hold: they are refused, or written down
// again they are the same.
#include <algorithm>
#include <cstdlib>

#include "backend/runner/saved/process_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bandsaw::runner;
  // Most of it lies behind the release, which no mutation finds.
  std::vector<std::byte> bytes = to_bytes({});
  const auto input = std::as_bytes(std::span(data, size));
  bytes.resize(sizeof bandsaw::wire::kSchema);
  bytes.insert(bytes.end(), input.begin(), input.end());
  const auto state = read_process_state(bytes);
  if (!state.ok()) return 0;
  const auto again = to_bytes(state.value());
  if (again.size() != bytes.size()) std::abort();
  for (const JournalEntry& call : state.value().calls) {
    bandsaw::wire::CheckedRecord record;
    (void)bandsaw::wire::check(call.record, &record);
  }
  return 0;
}
