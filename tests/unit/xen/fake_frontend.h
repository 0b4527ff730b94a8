// A frontend and its granted pages in this process: what a test writes into the ring, the connection reads.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "hypervisor/xen/connection.h"

namespace bandsaw::xen {

class FakeGrants final : public Grants {
 public:
  Status read(uint32_t ref, std::span<uint8_t> to) override {
    const auto page = lists.find(ref);
    if (page == lists.end()) return Status::error(EFAULT, "not granted: {}", ref);
    std::memset(to.data(), 0, to.size());
    std::memcpy(to.data(), page->second.data(), std::min(to.size(), page->second.size() * sizeof(uint32_t)));
    return {};
  }
  Result<Pages> offer(std::span<const uint32_t> refs) override {
    offered.emplace(next, refs.size());
    asked.assign(refs.begin(), refs.end());
    const uint64_t offset = next;
    next += refs.size() * VGPU_XEN_PAGE_BYTES;
    return Pages{UniqueFd(memfd_create("pages", MFD_CLOEXEC)), offset, static_cast<uint32_t>(refs.size())};
  }
  void withdraw(uint64_t offset, uint32_t count) override {
    const auto found = offered.find(offset);
    if (found == offered.end() || found->second != count) std::abort();  // what was not offered
    offered.erase(found);
  }

  std::map<uint32_t, std::vector<uint32_t>> lists;  // granted pages of grants
  std::map<uint64_t, size_t> offered;               // and not withdrawn
  std::vector<uint32_t> asked;                      // last
  uint64_t next = 0;
};

inline vgpu_ctl_reply reply_of(uint32_t status) {
  vgpu_ctl_reply reply{};
  reply.status = status;
  return reply;
}

class FakeSink final : public virtio::DeviceSink {
 public:
  void on_control(std::vector<uint8_t> request, Reply reply) override {
    requests.push_back(std::move(request));
    replies.push_back(std::move(reply));
    if (meanwhile) meanwhile();
    if (at_once) replies.back()(reply_of(status));
  }
  void on_ram_added(virtio::RamRegion region) override {
    if (!rams.insert(region.id).second) std::abort();
    region.fd.reset();
    last = std::move(region);
  }
  void on_ram_removed(uint32_t id, Done done) override {
    if (rams.erase(id) != 1) std::abort();
    if (holds_ram) return waiting.push_back(std::move(done));
    done();
  }
  void on_driver_ready() override {}
  void on_reset(Done done) override {
    ++resets;
    if (holds_reset) return waiting.push_back(std::move(done));
    done();
  }
  void on_connected() override { ++connects; }
  void on_disconnected() override {
    --connects;
    rams.clear();
  }

  bool at_once = true;
  bool holds_ram = false;    // removing waits
  bool holds_reset = false;  // so does the end of all processes
  int connects = 0, resets = 0;
  std::function<void()> meanwhile;  // what the guest does while a request is handled
  uint32_t status = 0;
  std::vector<Done> waiting;
  std::vector<std::vector<uint8_t>> requests;
  std::vector<Reply> replies;
  std::set<uint32_t> rams;
  virtio::RamRegion last;
};

struct FakeFrontend {
  std::unique_ptr<vgpu_xen_ring> ring = std::make_unique<vgpu_xen_ring>();
  FakeGrants grants;
  FakeSink sink;
  uint32_t next_ram = 100;
  int notified = 0;
  std::shared_ptr<Connection> connection =
      std::make_shared<Connection>(ring.get(), grants, sink, &next_ram, [this] { ++notified; });

  template <typename Body>
  void put(uint32_t tag, const Body& body, uint32_t list = 0, uint32_t pages = 0) {
    vgpu_xen_request& entry = ring->requests[ring->indices.requests % VGPU_XEN_SLOTS];
    entry = {.tag = tag, .bytes = sizeof body, .list = list, .pages = pages, .body = {}};
    std::memcpy(entry.body, &body, sizeof body);
    ++ring->indices.requests;
  }
  const vgpu_xen_reply& last_reply() const { return ring->replies[(ring->indices.replies - 1) % VGPU_XEN_SLOTS]; }
};

}  // namespace bandsaw::xen
