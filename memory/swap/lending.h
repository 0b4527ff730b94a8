// Which of a GPU's virtual GPUs hold how much of its memory, where programs may allocate more than is reserved for
// them: who has no work for a while lends of its reservation to those whose work finds no room. Tables only: no
// sockets, no clock.
//
// - What is lent comes back at once when its owner has work again. Two that work at the same time have their
//   reservations.
// - Only memory of those is lent whose programs have allocated more than the reservation: they wait for moves anyway.
//   Others never wait for anybody's. Memory that nobody has reserved is not lent, because who reserves it may not wait
//   for its return either.
// - Nobody may hold more before another one holds less: what all may hold, and what all have on the device, is never
//   more than is reserved for all together.
// - A loan that ended before it was worth its moves makes the next one of that lender wait longer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace bandsaw::swap {

// Of one GPU. Not thread-safe. Times in nanoseconds, sizes in bytes.
class Lending {
 public:
  static constexpr int64_t kNever = INT64_MAX;
  // Without work for so long, it lends: at least and at most.
  static constexpr int64_t kIdleLeast = 20'000'000, kIdleMost = 5'000'000'000;
  // A loan that lasts less than this, or than so many times what the memory took to leave, was not worth it.
  static constexpr int64_t kLoanLeast = 100'000'000, kLoanTimes = 4;
  // Who does not give up what it has lent within this time is asked no more until it has worked.
  static constexpr int64_t kPatience = 1'000'000'000;
  // Between two looks at memory on its way.
  static constexpr int64_t kLook = 1'000'000;

  // What is said of a virtual GPU.
  struct Terms {
    uint64_t share = 0;     // what programs may allocate
    uint64_t reserved = 0;  // what it may hold of the device whenever it has work
    uint64_t lendable = 0;  // of that, at most: the host has room for it
    bool operator==(const Terms&) const = default;
  };
  // What it does.
  struct Seen {
    uint64_t used = 0, on_device = 0;
    int64_t in_force = 0;                 // of Order::beyond: what its runners keep to
    bool works = false;                   // something of it is on an engine, or waits for one
    int64_t worked_at = 0, short_at = 0;  // when it last had work, and work that found no room on the device
  };
  // What it may hold beyond what is reserved (below 0: it lends), and what that will be soon, if that is more.
  struct Order {
    int64_t beyond = 0, coming = 0;
    bool operator==(const Order&) const = default;
  };

  // In force with the next review().
  void set(const std::string& name, const Terms& terms);
  // What it has lent is a debt() of the others until they have given it up.
  void remove(const std::string& name);
  // Its session is there: without one it neither lends nor borrows. `in_force`: an order of before.
  void attach(const std::string& name, int64_t in_force);
  void detach(const std::string& name);
  void see(const std::string& name, const Seen& seen);
  // Decides anew. Returns when to be called again at the latest, after see() of all.
  int64_t review(int64_t now);
  // Orders that have changed since they were last taken.
  std::vector<std::pair<std::string, Order>> take_orders();
  // All are to be taken again.
  void repeat_orders();

  // There are some that could lend each other something.
  bool may_change() const { return tenants_.size() > 1; }
  // What it may hold now beyond what is reserved; below 0: it lends.
  int64_t beyond(const std::string& name) const;
  // What is held beyond all that is reserved.
  uint64_t debt() const;

 private:
  struct Tenant {
    Terms terms;
    Seen seen;
    bool attached = false, active = false;
    Order told, sent;
    bool unsent = false;
    int64_t goal = 0, low = 0;  // of told.beyond
    int64_t idle_after = kIdleLeast;
    int64_t lent_at = 0, out_took = 0;  // since when it lends; how long that took to leave, 0: it is leaving
    int64_t moved_at = 0;               // when what it has on the device last changed while that was too much
    uint64_t moved_to = 0;
    uint64_t most = UINT64_MAX;  // it has not given up more, and has not worked since
    int64_t most_since = 0;      // worked_at then
  };

  static int64_t reserved(const Tenant& tenant) { return static_cast<int64_t>(tenant.terms.reserved); }
  static int64_t may_hold(const Tenant& tenant);
  static int64_t held(const Tenant& tenant);
  static bool leaves(const Tenant& tenant);
  static int64_t margin(const Tenant& tenant);
  static int64_t wish(const Tenant& tenant, int64_t now);
  void note_activity(Tenant& tenant, int64_t now);
  void note_leaving(Tenant& tenant, int64_t now);
  void set_goals(int64_t now);
  void give_orders();
  int64_t next_look(int64_t now) const;
  int64_t room() const;

  std::map<std::string, Tenant> tenants_;
  bool moved_ = false;  // something has changed since the last review
  int64_t moved_at_ = 0;
};

}  // namespace bandsaw::swap
