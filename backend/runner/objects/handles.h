// A guest process's handles: index, kind and generation (guest-driver/uapi/vgpu_wire.h) to object.
//
// Handles form a tree: what is made in a context, library, module or graph belongs to its handle and goes with it. A
// handle of another guest process means nothing here: tables are per process, and so are runners.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/device/device.h"
#include "backend/runner/objects/object_ledger.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw::runner {

using wire::HandleKind;
using ObjectRef = std::shared_ptr<Object>;

// Thread-safe.
class HandleTable {
 public:
  static constexpr uint32_t kMax = 1u << VGPU_HANDLE_PART_SHIFT;

  // Which part of the address window stands in the handles; before the first one. Less than VGPU_WINDOW_PARTS.
  void set_part(uint32_t part) { part_ = part << VGPU_HANDLE_PART_SHIFT; }

  // What objects count against the share and the limits, from now on; before the first one. Both outlive this.
  void set_prices(bool on_gpu, DeviceHost* host, ObjectQuota* quota = nullptr) {
    ledger_.set_prices(on_gpu, host, quota);
  }

  // 0: the table is full, or the memory share. `owner`: the handle it belongs to, 0 for none.
  uint64_t add(HandleKind kind, ObjectRef object, uint64_t owner = 0);
  // As add, but an object that is in the table already keeps its handle (graph nodes, graphs under capture).
  uint64_t add_once(HandleKind kind, ObjectRef object, uint64_t owner = 0);
  // nullptr: no such handle, or of another kind.
  ObjectRef find(HandleKind kind, uint64_t handle) const;
  // Another object under the same handle (a context that was reset).
  bool replace(uint64_t handle, ObjectRef object);
  // Takes the handle and all that belongs to it out. Returns what was there; nullptr as above.
  ObjectRef remove(HandleKind kind, uint64_t handle);
  // Takes out what belongs to the handle, which stays.
  void remove_owned(uint64_t handle);
  uint64_t owner(uint64_t handle) const;
  // It goes with another handle from now on. Nothing happens if one of them is not there.
  void give_to(uint64_t handle, uint64_t owner);
  // The handle of an object made by add_once, or 0.
  uint64_t handle_of(const Object* object) const;
  size_t size() const;
  std::vector<uint64_t> all() const;

  // To give the same handles again, in an empty table: what will be the generation of the next handle of each index.
  // While calls are made again (backend/device/given.h), they get the handles that they had; then finish_again().
  std::vector<uint32_t> generations() const;
  void begin_again(const std::vector<uint32_t>& generations);
  void finish_again();

 private:
  struct Slot {
    HandleKind kind = HandleKind::kNone;
    uint32_t generation = 1;
    uint64_t owner = 0;
    ObjectRef object;
  };
  const Slot* slot(uint64_t handle) const;
  void clear(uint32_t index, std::vector<ObjectRef>* gone);
  void clear_owned(uint64_t handle, std::vector<ObjectRef>* gone);
  uint64_t add_locked(HandleKind kind, ObjectRef object, uint64_t owner);
  std::optional<uint32_t> take_index(HandleKind kind);

  uint32_t part_ = 0;  // where handles have it
  mutable std::mutex mutex_;
  ObjectLedger ledger_;                                               // guarded by mutex_
  std::vector<Slot> slots_;                                           // guarded by mutex_
  std::vector<uint32_t> free_;                                        // guarded by mutex_
  std::unordered_map<const Object*, uint64_t> handles_;               // guarded by mutex_: of add_once
  std::unordered_map<uint64_t, std::unordered_set<uint32_t>> owned_;  // guarded by mutex_: owner -> indices
};

}  // namespace bandsaw::runner
