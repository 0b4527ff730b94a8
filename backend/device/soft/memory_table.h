// Device memory of the software device: pages of this process at addresses in the window's upper half.
//
// Each allocation has pages of its own and an unmapped page behind it, so that wild accesses fault; freed memory
// is unmapped at once. Every mapped byte is charged to the virtual GPU's share. Thread-safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/device/gives_again.h"
#include "backend/device/soft/address_space.h"
#include "memory/base/unique_fd.h"
#include "memory/share.h"
#include "memory/swap/book.h"

namespace bandsaw::soft {

inline constexpr uint64_t kPage = 4096;

// What an allocation is for, which decides who may free it.
enum class Use {
  kPlain,    // memory_alloc: the program's
  kPool,     // a pool's block; live or cached
  kGraph,    // an allocation node's: reserved, mapped while it lives
  kPrivate,  // variables, workspaces: never freed by the program
  kHeap,     // kernels' malloc: neither
};

struct Allocation {
  uint64_t address = 0, bytes = 0;  // as asked for
  uint64_t mapped = 0;              // whole pages
  uint64_t reserved = 0;            // with the guard
  Use use = Use::kPlain;
  const void* owner = nullptr;           // a context or a pool
  bool live = true;                      // the program may use it
  bool given = false;                    // to a call that is noted (given.h)
  uint32_t claims = 0;                   // launches that have a graph's allocation and have not freed it
  bool abandoned = false;                // a graph's, whose node is gone
  std::shared_ptr<const UniqueFd> file;  // its pages, once other processes may have them
  std::vector<swap::Piece> chunks;       // of one that may lie partly in host memory; else none
};

class Memory {
 public:
  Memory(uint64_t window_base, uint64_t share, DeviceHost* host);
  ~Memory();  // unmaps what is left
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Allocations lie in this part of the window from now on. False: there are some already.
  bool use_part(uint32_t part);

  // Allocations lie in [base, base + 2^bits) of the part from now on. What is not allocated there, and `slack` bytes
  // on either side, does not fault: it is mapped to a few pages, over and over. False: there are some already, or the
  // host has no room.
  bool use_area(uint64_t base, uint32_t bits, uint64_t slack);
  uint64_t part() const { return part_; }

  CUresult allocate(uint64_t bytes, Use use, const void* owner, uint64_t* address);
  // An address without pages, not live. It has pages as long as somebody claims it; each claim is dropped once.
  CUresult reserve(uint64_t bytes, const void* owner, uint64_t* address);
  // Of all that are reserved so, and in another process the same.
  std::vector<GraphMemoryAgain> graph_memory() const;
  CUresult reserve_again(const GraphMemoryAgain& memory);
  CUresult claim(uint64_t address);
  void drop_claim(uint64_t address);
  // Forgets a reserved address: at once if nobody claims it, else with the last claim.
  void abandon(uint64_t address);
  // Unmaps and forgets. INVALID_VALUE if no allocation begins there.
  CUresult release(uint64_t address);
  void release_owner(const void* owner);

  // What belongs to `owner` is no longer the program's to use; its pages stay until release_owner.
  void retire_owner(const void* owner);

  // Marks an allocation as (no longer) the program's to use; INVALID_VALUE if it already is so.
  CUresult set_live(uint64_t address, bool live);
  std::optional<Allocation> find(uint64_t address) const;  // the one that begins there
  // Whether [address, address + bytes) lies in one live allocation or a graph's, or in the lower half of the window,
  // where the process around maps what it likes and a copy finds out.
  bool accessible(uint64_t address, uint64_t bytes) const;

  CUresult managed_add(uint64_t address, uint64_t bytes);
  CUresult managed_remove(uint64_t address);

  // Whether the range lies where other virtual GPUs of the guest process have their memory, and nowhere else.
  bool is_elsewhere(uint64_t address, uint64_t bytes) const;

  // From now on plain allocations are born with pages that other processes can map.
  void share_new() { share_new_ = true; }
  // Makes the pages of a live plain allocation those of a sealed file (shared_memory.h) of `bytes` bytes: other
  // processes can map it. Nobody may use them meanwhile. INVALID_VALUE: no such allocation begins there.
  CUresult share_pages(uint64_t address, std::shared_ptr<const UniqueFd>* file, uint64_t* bytes);

  // As Device::chunks_move. On this device host memory is other pages of the same kind, so that who still uses the old
  // ones loses what it writes.
  CUresult move_chunks(const swap::Moves& moves);
  // As Device::chunks_reach. What is apart faults.
  CUresult reach_chunks(const std::vector<uint64_t>& chunks);

  // As Device::memory_leave and memory_return: the pages of all allocations go elsewhere in this process, and what is
  // behind them faults. Nobody may call anything else in between.
  CUresult leave();
  CUresult come_back();
  // Of those that left: where their pages are. Pages that other processes may have stay out of it.
  std::vector<AwayMemory> away() const;

  // Whether what begins there was given to a call that is noted.
  bool is_given(uint64_t address) const;
  // What the program has that was given to no such call, in a word.
  std::string not_given() const;

  // Addresses for somebody else's mappings, without pages; 0: no room.
  uint64_t reserve_addresses(uint64_t bytes, uint64_t alignment);
  bool reserve_addresses_at(uint64_t address, uint64_t bytes);  // false: somebody has some of it
  void give_back_addresses(uint64_t address, uint64_t bytes);
  // What has no pages any more faults from now on, or is mapped as use_area() says. False: no room for that.
  bool seal(uint64_t address, uint64_t bytes) const;
  // Memory that the program has and this table does not. False: over the share.
  bool count(uint64_t bytes);
  void uncount(uint64_t bytes);

  // Files with memory (PhysicalMemory) that this process alone has, which leave() finds by their keys: pages before any
  // address. claim_physical(): of one that comes from another process; false: it is in use, or no such number.
  uint64_t next_physical();
  bool claim_physical(uint64_t key);
  void enter_physical(uint64_t key, int file, uint64_t bytes);
  void leave_physical(uint64_t key);
  bool has_physical(uint64_t key) const;

  // For what else counts against the same share.
  Charge<DeviceHost> new_charge() const { return Charge<DeviceHost>(host_); }

  uint64_t window_base() const { return window_base_; }
  uint64_t share() const { return share_; }
  uint64_t used() const;
  // Pages of graphs' allocations, now and at most since the mark was reset. There are two marks: used, reserved.
  uint64_t graph_bytes() const;
  uint64_t graph_high(bool used) const;
  void reset_graph_high(bool used);

 private:
  void count_graph_locked(const Allocation& allocation, bool mapped);
  CUresult map_locked(Allocation& allocation);
  void unmap_locked(Allocation& allocation);
  void forget_locked(std::map<uint64_t, Allocation>::iterator found);
  bool map_pages(Allocation& allocation, uint64_t bytes);
  bool charge_locked(Allocation& allocation, uint64_t bytes);
  void uncharge_locked(Allocation& allocation, uint64_t bytes);
  CUresult take_range(uint64_t bytes, Use use, const void* owner, uint64_t* address);
  void place(Allocation* allocation, uint64_t guard);

  const uint64_t window_base_, share_;
  DeviceHost* const host_;
  mutable std::mutex mutex_;
  AddressSpace space_;
  uint64_t part_;   // where the own part of the window begins
  UniqueFd spare_;  // the pages of what is not allocated, where that does not fault
  std::atomic<bool> share_new_{false};
  std::map<uint64_t, Allocation> table_;
  std::map<uint64_t, uint64_t> managed_;
  struct Physical {
    int file = -1;
    uint64_t bytes = 0;
  };
  std::map<uint64_t, Physical> physical_;
  uint64_t next_physical_ = kPage;
  struct Away {
    uint64_t address = 0, bytes = 0;
    void* pages = nullptr;  // where its bytes are; null: in `file`
    std::shared_ptr<const UniqueFd> file;
    bool physical = false;  // `pages` are a view of one of physical_
  };
  bool take_away(const Allocation& allocation);
  bool view(uint64_t key, const Physical& physical);
  static bool put_back(const Away& away);
  CUresult bring_back();
  std::vector<Away> away_;
  // memory_chunks.cc
  struct Pages {
    void* at = nullptr;
    uint64_t bytes = 0;
  };
  Pages take_spare_pages(uint64_t bytes);
  void keep_spare_pages(const Pages& pages);
  void drop_spare_pages();
  CUresult move_chunk(uint64_t address, bool to_device, bool apart);
  bool reach_locked(uint64_t address);
  bool rehome(uint64_t address, uint64_t bytes);
  std::vector<Pages> spare_pages_;
  std::map<uint64_t, uint64_t> apart_;  // chunks that are away and fault, with their bytes
  uint64_t used_ = 0;
  uint64_t graph_bytes_ = 0, graph_high_[2] = {0, 0};
};

}  // namespace bandsaw::soft
