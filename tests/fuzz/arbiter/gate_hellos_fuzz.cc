// A session's greeting on the gate socket. What must hold: a place that is taken lies whole in the page, and the page
// in its file.
#include <cstdlib>
#include <span>

#include "backend/vgpud/arbiter/gate_memory.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bandsaw;
  Input input(std::as_bytes(std::span(data, size)));
  GateHello hello;
  hello.usage_page_bytes = input.number<uint64_t>();
  hello.grant_page_offset = input.number<uint64_t>();
  const auto file = input.number<uint64_t>();
  if (!check_greeting(hello, file).ok()) return 0;
  if (hello.usage_page_bytes > file || hello.usage_page_bytes < sizeof(GrantPage)) std::abort();
  if (hello.usage_page_bytes - sizeof(GrantPage) < hello.grant_page_offset) std::abort();
  if (hello.grant_page_offset % alignof(GrantPage) != 0) std::abort();
  return 0;
}
