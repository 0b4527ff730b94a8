// What a hostile or broken frontend may do to the backend; each case ends with a look whether an honest one is served.
// Prints `CASE: ok` or what was wrong. Arguments: the cases (all, if none). To be run in a domain whose virtual GPU the
// module has let go of.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <thread>

#include "guest-driver/uapi/wire.h"
#include "tests/xen/hostile/frontend.h"

namespace {

constexpr uint32_t kProcess = 7;
constexpr int kClosing = 5, kClosed = 6;

void check(bool is_so, const std::string& what) {
  if (!is_so) throw Wrong(what);
}

vgpu_ctl_create_process create_process() {
  vgpu_ctl_create_process create{};
  create.header = {VGPU_CTL_CREATE_PROCESS, kProcess};
  create.schema = bandsaw::wire::kSchema;
  std::memcpy(create.comm, "hostile", 7);
  return create;
}

vgpu_ctl_add_region add_region(uint32_t id, uint32_t pages) {
  return {.header = {VGPU_CTL_ADD_REGION, kProcess},
          .id = id,
          .flags = 0,
          .va = 0x10000000,
          .bytes = uint64_t{pages} * VGPU_XEN_PAGE_BYTES,
          .segments = 0,
          .reserved = 0};
}

void fill(const SharedPages& list, std::span<const uint32_t> refs) {
  std::copy(refs.begin(), refs.end(), static_cast<uint32_t*>(list.data()));
}

void is_served(Frontend& frontend) {
  frontend.connect();
  check(frontend.ask(vgpu_ctl_header{VGPU_CTL_PING, 0}) == 0u, "an honest ping has no answer");
}

void is_refused(Frontend& frontend, const std::string& what) {
  frontend.set("state", "3");
  check(frontend.backend_becomes({kClosed}), what + " is not refused");
}

void states(Frontend& frontend) {
  for (const char* text : {"4", "6", "5", "0", "7", "-1", "99999999999999999999", "connected", "3 ", ""}) {
    frontend.set("state", text);
    frontend.start_anew();
  }
  frontend.set("state", std::string(2000, '3'));
  frontend.start_anew();
  is_served(frontend);
  frontend.set("state", "3");  // back, in the middle
  check(frontend.ask(vgpu_ctl_header{VGPU_CTL_PING, 0}) == 0u, "a step back ends the connection");
}

void keys(Frontend& frontend) {
  const std::pair<const char*, const char*> wrong[] = {
      {"ring-ref0", "x"},     {"ring-ref2", ""},      {"ring-ref4", "4294967295"},       {"ring-ref3", "31999"},
      {"ring-ref1", "-1"},    {"event-channel", "0"}, {"event-channel", "4000000000"},   {"event-channel", "port"},
      {"abi-version", "999"}, {"abi-version", ""},    {"abi-version", "99999999999999"}, {"event-channel", "131071"}};
  for (const auto& [key, value] : wrong) {
    frontend.start_anew();
    frontend.make_ring();
    frontend.set(key, value);
    is_refused(frontend, std::string(key) + "=" + value);
  }
  frontend.start_anew();
  frontend.make_ring();
  frontend.set("ring-ref1", std::string(1500, '8'));
  is_refused(frontend, "a ring-ref of 1500 digits");
}

// Grants for another domain than the backend's: the ring's, a region's and its list's.
void foreign(Frontend& frontend) {
  frontend.start_anew();
  frontend.make_ring(frontend.self());
  is_refused(frontend, "a ring that is granted to another domain");
  is_served(frontend);
  check(frontend.ask(create_process()) == 0u, "no process");
  const SharedPages pages(frontend.self(), 4), honest(frontend.backend(), 4);
  const SharedPages list(frontend.backend(), 1), foreign_list(frontend.self(), 1);
  fill(list, pages.refs());
  check(frontend.ask(add_region(1, 4), list.refs()[0], 4).value_or(0) != 0, "foreign pages become a region");
  fill(list, honest.refs());
  static_cast<uint32_t*>(list.data())[3] = pages.refs()[3];
  check(frontend.ask(add_region(1, 4), list.refs()[0], 4).value_or(0) != 0,
        "one foreign page becomes part of a region");
  fill(foreign_list, honest.refs());
  check(frontend.ask(add_region(1, 4), foreign_list.refs()[0], 4).value_or(0) != 0, "a foreign list is read");
  fill(list, honest.refs());
  check(frontend.ask(add_region(1, 4), list.refs()[0], 4) == 0u, "honest pages are refused afterwards");
  check(frontend.ask(vgpu_ctl_header{VGPU_CTL_DESTROY_PROCESS, kProcess}) == 0u, "the process does not end");
}

// Grants that end: before the request, at any moment of it, and while they are mapped.
void revoked(Frontend& frontend) {
  is_served(frontend);
  check(frontend.ask(create_process()) == 0u, "no process");
  const SharedPages list(frontend.backend(), 1);
  {
    const SharedPages gone(frontend.backend(), 8);
    fill(list, gone.refs());
  }
  check(frontend.ask(add_region(1, 8), list.refs()[0], 8).value_or(0) != 0, "ended grants become a region");
  uint32_t refused = 0;
  for (uint32_t id = 2; id < 40; ++id) {
    std::optional<SharedPages> pages(std::in_place, frontend.backend(), 8);
    fill(list, pages->refs());
    const uint32_t tag = frontend.put(add_region(id, 8), list.refs()[0], 8);
    std::this_thread::sleep_for(std::chrono::microseconds(id * 100));
    pages.reset();
    const auto status = frontend.reply(tag);
    check(status.has_value(), "no answer while grants end");
    refused += *status != 0;
  }
  std::printf("revoked: %u of 38 regions were refused, the others were mapped when their grants ended\n", refused);
  check(frontend.ask(vgpu_ctl_header{VGPU_CTL_DESTROY_PROCESS, kProcess}) == 0u, "the process does not end");
}

void is_thrown_out(Frontend& frontend, const std::string& what) {
  frontend.notify();
  check(frontend.backend_becomes({kClosing, kClosed}), what + " is taken");
}

void indices(Frontend& frontend) {
  for (const uint32_t index : {VGPU_XEN_SLOTS + 1, 1u << 31, UINT32_MAX}) {
    frontend.connect();
    frontend.ring().indices.requests = index;
    is_thrown_out(frontend, "index " + std::to_string(index));
  }
  for (const bool is_long : {true, false}) {
    frontend.connect();
    vgpu_xen_request& entry = frontend.ring().requests[0];
    (is_long ? entry.bytes : entry.pages) = is_long ? VGPU_XEN_BODY_BYTES + 1 : VGPU_XEN_PAGES_MAX + 1;
    frontend.ring().indices.requests = 1;
    is_thrown_out(frontend, is_long ? "a body that is too long" : "a request for too many pages");
  }
}

// Everything that the frontend may write changes all the time, and the doorbell rings.
void rewriting(Frontend& frontend) {
  std::mt19937 random(18);
  uint32_t thrown_out = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end) {
    frontend.connect();
    std::atomic<bool> over = false;
    std::thread writer([&, seed = random()] {
      std::mt19937 own(seed);
      while (!over) {
        vgpu_xen_request& entry = frontend.ring().requests[own() % VGPU_XEN_SLOTS];
        entry.bytes = static_cast<uint32_t>(own() % (VGPU_XEN_BODY_BYTES + (own() % 64 == 0)));
        entry.pages = own() % 4 ? 0u : static_cast<uint32_t>(own() % 5000);
        entry.list = static_cast<uint32_t>(own() % 3000);
        const vgpu_ctl_header header{static_cast<uint32_t>(own() % 11), static_cast<uint32_t>(own() % 9)};
        std::memcpy(entry.body, &header, sizeof header);
      }
    });
    for (int i = 0; i < 60; ++i) {
      frontend.ring().indices.requests += static_cast<uint32_t>(random() % 5);
      frontend.notify();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    over = true;
    writer.join();
    thrown_out += !frontend.backend_becomes({4});
  }
  std::printf("rewriting: thrown out %u times\n", thrown_out);
}

// The doorbell as fast as it goes: requests are answered meanwhile, and the backend has time for others.
void storm(Frontend& frontend) {
  is_served(frontend);
  std::atomic<bool> over = false;
  std::atomic<uint64_t> rings = 0;
  std::thread bell([&] {
    for (; !over; ++rings) frontend.notify();
  });
  for (int i = 0; i < 20; ++i) {
    check(frontend.ask(vgpu_ctl_header{VGPU_CTL_PING, 0}) == 0u, "no answer in a storm of events");
  }
  over = true;
  bell.join();
  std::printf("storm: 20 answers while the doorbell rang %llu times\n", static_cast<unsigned long long>(rings.load()));
}

}  // namespace

int main(int count, char** names) {
  const std::map<std::string, std::function<void(Frontend&)>> cases = {
      {"states", states},   {"keys", keys},           {"foreign", foreign}, {"revoked", revoked},
      {"indices", indices}, {"rewriting", rewriting}, {"storm", storm}};
  int failed = 0;
  for (const auto& [name, run] : cases) {
    if (count > 1 && std::find(names + 1, names + count, name) == names + count) continue;
    try {
      Frontend frontend;
      run(frontend);
      is_served(frontend);
      std::printf("%s: ok\n", name.c_str());
    } catch (const Wrong& wrong) {
      std::printf("%s: WRONG: %s\n", name.c_str(), wrong.what());
      ++failed;
    }
    std::fflush(stdout);
  }
  return failed ? 1 : 0;
}
