// A domain and a toolstack that do anything at any time: keys of any text or none, states in any order, grants and
// ports that are none, a doorbell that never stops, domains that come and go in the middle of the backend's own
// requests, a session that answers late. Input: steps of one byte and what it needs. At the end nothing of the domains
// is left.
#include <event2/event.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>

#include "hypervisor/xen/backend.h"
#include "hypervisor/xen/toolstack.h"
#include "memory/base/log.h"
#include "tests/fuzz/input.h"
#include "tests/unit/xen/fake_xen.h"

namespace bandsaw::xen {
namespace {

constexpr const char* kKeys[] = {"state",         "ring-ref0",   "ring-ref1",  "ring-ref2", "ring-ref3",   "ring-ref4",
                                 "event-channel", "abi-version", "backend-id", "backend",   "state/state", "handle"};
constexpr const char* kValues[] = {"0",  "1",   "2",   "3",   "4", "5",          "6",  "7",  "",
                                   "-1", "100", "101", "102", "9", "4294967295", "1x", "3 ", "4294967296"};
constexpr int kTurnsToRest = 50;  // of the loop, once nobody disturbs

struct World {
  FakeXen xen;
  FakeSink sink;
  event_base* base = event_base_new();
  std::unique_ptr<Backend> backend;
  bool admits = true;
  size_t watches = 0;  // of a backend that serves nobody

  World() {
    backend = std::move(Backend::open("web0").value());
    backend->admit([this] { return admits; });
    if (!backend->start(base, sink).ok()) std::abort();
    watches = xen.store.watches();
  }
  ~World() {
    backend.reset();
    event_base_free(base);
  }
  void turn() { event_base_loop(base, EVLOOP_NONBLOCK); }
};

DevicePath device_of(Input& input) { return {3u + input.byte() % 2u, input.byte() % 8u ? 0u : 1u}; }

std::string value_of(Input& input) {
  const uint8_t kind = input.byte();
  if (kind < std::size(kValues)) return kValues[kind];
  const auto bytes = input.take(kind % 64u);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return kind >= 250 ? std::string(3000, '3') : text;
}

void scribble(Input& input, vgpu_xen_ring& ring) {
  auto& entry = ring.requests[input.byte() % VGPU_XEN_SLOTS];
  const auto bytes = input.take(40 + 4 * sizeof entry.tag);
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(&entry, 1)).begin());
  ring.indices.requests += input.byte() % 4;
  ring.indices.events_taken += input.byte() % 2;
}

void domain_step(Input& input, World& world, uint8_t kind) {
  const DevicePath device = device_of(input);
  const std::string folder = device.frontend();
  const bool has_folder = world.xen.store.read(folder).has_value();  // the toolstack alone makes one
  switch (kind) {
    case 0:
    case 1:
      if (const std::string key = kKeys[input.byte() % std::size(kKeys)]; has_folder) {
        world.xen.store.write(folder + "/" + key, value_of(input));
      }
      return;
    case 2:
      world.xen.store.remove(folder + "/" + kKeys[input.byte() % std::size(kKeys)]);
      return;
    case 3:
      if (input.byte() % 4 == 0) world.xen.store.remove(folder);
      return;
    case 4:
      if (has_folder) world.xen.offer_ring(device.domain, device.index);
      return;
    case 5:
      if (vgpu_xen_ring* const ring = world.xen.ring()) scribble(input, *ring);
      world.xen.ring_doorbell();
      return;
    case 6:
      if (vgpu_xen_ring* const ring = world.xen.ring()) ring->indices.requests = input.number<uint32_t>();
      return;
    default:
      world.xen.grants.lists[input.byte()].push_back(input.byte());
      world.xen.granted.erase(100 + input.byte() % 8u);
  }
}

void answer_one(Input& input, FakeSink& sink) {
  if (const size_t count = sink.replies.size()) sink.replies[input.byte() % count](reply_of(input.byte() % 2u));
  if (sink.waiting.empty()) return;
  const auto at = sink.waiting.begin() + static_cast<ptrdiff_t>(input.byte() % sink.waiting.size());
  const auto done = std::move(*at);
  sink.waiting.erase(at);
  done();
}

// What the toolstack and the rest of the session do.
void host_step(Input& input, World& world, uint8_t kind) {
  const uint32_t domain = 3u + input.byte() % 2u;
  switch (kind) {
    case 0:
      return world.xen.create_domain(domain, input.byte() % 4 ? "guest" : "other");
    case 1:
      return world.xen.destroy_domain(domain);
    case 2:
      return (void)attach(std::to_string(domain), "web0");
    case 3:
      return (void)detach(std::to_string(domain), "web0");
    case 4:
      return world.backend->expect(input.byte() % 2 ? "guest" : "");
    case 5:
      world.sink.at_once = input.byte() & 1;
      world.sink.holds_ram = input.byte() & 1;
      world.sink.holds_reset = input.byte() & 1;
      world.admits = input.byte() % 8 != 0;
      return;
    case 6:
      return world.backend->post_event(VGPU_EVENT_WAKE, input.byte());
    default:
      return answer_one(input, world.sink);
  }
}

void step(Input& input, World& world) {
  const uint8_t kind = input.byte() % 24;
  if (kind >= 16) return world.turn();
  kind < 8 ? domain_step(input, world, kind) : host_step(input, world, kind - 8);
}

void act_meanwhile(Input& input, World& world) {
  const uint8_t kind = input.byte() % 10;
  if (kind < 8) return domain_step(input, world, kind);
  host_step(input, world, kind == 8 ? 1 : 3);  // the toolstack has no other part of the backend's affairs
}

// The session answers all that it owes.
void settle(World& world) {
  world.sink.at_once = true;
  world.sink.holds_ram = world.sink.holds_reset = false;
  for (int i = 0; i < kTurnsToRest; ++i) {
    for (const auto& done : std::exchange(world.sink.waiting, {})) done();
    for (const auto& reply : std::exchange(world.sink.replies, {})) reply(reply_of(0));
    world.turn();
  }
}

void check(bool is_so, const char* what) {
  if (is_so) return;
  std::fprintf(stderr, "left: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool quiet = (log::silence(), true);
  const auto bytes = std::as_bytes(std::span(data, size));
  Input input(bytes.first(size / 2)), others(bytes.subspan(size / 2));
  World world;
  world.xen.meanwhile = [&] {
    if (!others.empty() && others.byte() % 8 == 0) act_meanwhile(others, world);
  };
  while (!input.empty()) step(input, world);
  const bool ends_early = size > 0 && data[size - 1] % 4 == 0;
  if (ends_early) world.backend.reset();  // before the session has answered
  if (!ends_early) world.backend->expect("");
  for (const uint32_t domain : {3u, 4u}) world.xen.destroy_domain(domain);
  settle(world);
  if (ends_early) return 0;
  check(!world.backend->connected() && world.backend->domain() == 0, "a domain");
  check(!world.xen.holds_anything(), "grants or event channels");
  check(world.xen.store.list("backend/vgpu").empty(), "keys in xenstore");
  check(world.xen.store.watches() == world.watches, "watches");
  check(world.sink.connects == 0, "a connection that the session knows");
  return 0;
}

}  // namespace bandsaw::xen
