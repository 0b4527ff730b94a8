// Xen's libraries in this process, linked in their place: what the backend asks of xenstore, event channels and grants
// is answered here, and a test plays the toolstack and the domains.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "hypervisor/xen/store_path.h"
#include "tests/unit/xen/fake_frontend.h"
#include "tests/unit/xen/fake_store.h"

namespace bandsaw::xen {

// One at a time; outlives each Backend.
class FakeXen {
 public:
  FakeXen();
  ~FakeXen();
  static FakeXen& current();

  // What the toolstack does.
  void create_domain(uint32_t domain, const std::string& name);
  void destroy_domain(uint32_t domain);
  // What the domain does: all that a frontend grants and writes, up to Initialised.
  void offer_ring(uint32_t domain, uint32_t index = 0);
  void ring_doorbell();

  vgpu_xen_ring* ring() { return rings.empty() ? nullptr : rings.rbegin()->second.get(); }
  bool holds_anything() const { return !rings.empty() || !ports.empty() || !grants.offered.empty(); }

  FakeStore store;
  FakeGrants grants;                                      // of lists and regions
  std::set<uint32_t> granted, unbound;                    // of rings; ports of domains, one domain's as another's
  std::map<void*, std::unique_ptr<vgpu_xen_ring>> rings;  // mapped now
  std::map<uint32_t, uint32_t> ports;                     // bound now: ours, the domain's
  std::deque<uint32_t> pending;
  uint32_t next_port = 1, notified = 0;
  std::function<void()> meanwhile;  // others are at work: before each request of the backend to the store
  UniqueFd channel_signal;
};

}  // namespace bandsaw::xen
