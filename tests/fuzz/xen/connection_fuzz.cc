// A ring, granted lists and xenstore texts of any content: the connection takes requests, shares pages and gives all of
// them back. Input: steps of one byte and what it needs.
#include <cstdlib>
#include <string>

#include "hypervisor/xen/store_path.h"
#include "tests/fuzz/input.h"
#include "tests/unit/xen/fake_frontend.h"

namespace bandsaw::xen {
namespace {

void scribble(Input& input, FakeFrontend& frontend) {
  vgpu_xen_request& entry = frontend.ring->requests[input.byte() % VGPU_XEN_SLOTS];
  const auto bytes = input.take(40 + sizeof entry.tag * 4);
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(&entry, 1)).begin());
}

void parse(Input& input) {
  const auto bytes = input.take(input.byte());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  (void)parse_state(text);
  const auto number = parse_number(text);  // as of ring-ref0 and event-channel
  if (number && parse_number(std::to_string(*number)) != number) std::abort();
  const auto device = parse_device(text.substr(0, text.size() / 2), text.substr(text.size() / 2));
  if (device && parse_device(std::to_string(device->domain), std::to_string(device->index)) != device) std::abort();
}

bool step(Input& input, FakeFrontend& frontend) {
  switch (input.byte() % 8) {
    case 0:
      scribble(input, frontend);
      return true;
    case 1:
      frontend.ring->indices.requests += input.byte() % 4;
      return true;
    case 2:
      frontend.grants.lists[input.byte()].push_back(input.byte());
      return true;
    case 3:
      frontend.ring->indices.events_taken += input.byte() % 4;
      return frontend.connection->post_event(VGPU_EVENT_WAKE, input.byte()).ok();
    case 4:
      if (const size_t count = frontend.sink.replies.size()) {
        frontend.sink.replies[input.byte() % count](reply_of(input.byte() % 2u));
      }
      return true;
    case 5:
      parse(input);
      return true;
    case 6:
      frontend.ring->indices.requests = input.number<uint32_t>();
      return true;
    default:
      frontend.sink.at_once = input.byte() & 1;
      return frontend.connection->serve().ok();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(std::as_bytes(std::span(data, size)));
  FakeFrontend frontend;
  while (!input.empty() && step(input, frontend)) {
  }
  // Nothing that is still to be answered holds pages afterwards.
  for (auto& reply : frontend.sink.replies) reply(reply_of(EIO));
  frontend.connection->withdraw_all();
  if (!frontend.grants.offered.empty() || frontend.connection->pages() != 0) std::abort();
  return 0;
}

}  // namespace bandsaw::xen
