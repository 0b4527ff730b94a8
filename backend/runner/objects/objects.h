// What the handles of one guest process name, special streams included.
#pragma once

#include <map>
#include <mutex>
#include <unordered_set>

#include "backend/runner/objects/handles.h"
#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::runner {

// Thread-safe.
class Objects : public wire::HandleSource {
 public:
  explicit Objects(Device* device) : device_(device) {}

  HandleTable& table() { return table_; }

  ObjectRef find(wire::HandleKind kind, uint64_t handle) override { return table_.find(kind, handle); }
  // 0 and VGPU_STREAM_LEGACY: the context's legacy stream; VGPU_STREAM_PER_THREAD: one per ring and context, made at
  // first use.
  StreamRef find_stream(const wire::CallContext& call, uint64_t handle) override;

  // Events that graphs may record or wait for, by handle, until they are destroyed.
  void note_in_graphs(uint64_t event);
  bool is_in_graphs(uint64_t event);
  void forget_in_graphs(uint64_t event);

  // The special streams go with their ring or context.
  void forget_ring(uint32_t ring);
  void forget_context(const Context* context);

 private:
  static constexpr size_t kEventsMost = 1 << 16;  // those that went with their context stay in in_graphs_

  struct Special {
    StreamRef legacy;
    std::map<uint32_t, StreamRef> per_thread;  // by ring
  };

  Device* const device_;
  HandleTable table_;
  std::mutex mutex_;
  std::map<const Context*, Special> special_;  // guarded by mutex_
  std::unordered_set<uint64_t> in_graphs_;     // the same
  bool all_in_graphs_ = false;                 // the same; there were too many, so any event may be
};

}  // namespace bandsaw::runner
