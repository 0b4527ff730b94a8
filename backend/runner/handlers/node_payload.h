// Graph nodes on the wire: the payload of each CUgraphNodeType (guest-driver/uapi/vgpu_wire.h), and which host memory a
// graph's copies use.
//
//   KERNEL       vgpu_launch, then the packed parameters   WAIT_EVENT, EVENT_RECORD   u64 event
//   MEMCPY       vgpu_copy_node                            GRAPH    u64 graph, or vgpu_moved_child_node
//   MEMSET       vgpu_fill_node                            MEM_ALLOC, MEM_FREE        vgpu_alloc_node
//   HOST         vgpu_host_node                            EMPTY                      nothing
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device/gives_again.h"
#include "backend/runner/memory/guest_memory.h"
#include "backend/runner/objects/objects.h"

namespace bandsaw::runner {

// Nothing of `payload` is trusted. The launch in `content` points into its own parameter_bytes.
// A launch's shape and hints, checked; code, stream and parameters are the caller's.
CUresult read_launch(const vgpu_launch& from, Launch* launch);

CUresult decode_node(Objects& objects, const GuestMemory& memory, uint32_t type, std::span<const std::byte> payload,
                     NodeContent* content);

// `node`: the node's handle, which will own the handle of a child graph. `context` fills the field of that name.
CUresult encode_node(Objects& objects, const GuestMemory& memory, const NodeContent& content, uint64_t node,
                     uint64_t context, std::string* payload);

// Host memory of graph copies. A graph may outlive the regions that its copies name, and a region's drop cannot wait
// for the graph, so regions are looked up again and held at each launch. Also counts what graphs put on which engine,
// into the Exec. Thread-safe.
class GraphMemory {
 public:
  GraphMemory(Device* device, const GuestMemory* memory) : device_(device), memory_(memory) {}

  // Takes note of the copies of a graph, child graphs included, for an instantiated or updated exec. `cut`: whether the
  // graph may be cut (graph_segments.h).
  CUresult note(const ExecRef& exec, const GraphRef& graph, bool* cut);
  // The same for one that was made of steps, whose nodes may have gone.
  void note_steps(const ExecRef& exec, std::span<const ExecStep> steps);
  // The same for one node that has new content.
  void note_node(const ExecRef& exec, const Node* node, const NodeContent& content);
  void forget(const ExecRef& exec);
  // What must be held while a launch runs; nothing when a region is gone.
  std::optional<std::vector<RegionRef>> hold(const ExecRef& exec) const;

 private:
  struct Range {
    const Node* node;
    uint64_t pointer, bytes;
    unsigned engine;
    uint64_t moved;  // by the copy; 0 for the second range of one
  };
  using Ranges = std::vector<Range>;
  // What is on the compute engine.
  struct Inside {
    uint64_t nodes = 0, bytes = 0;
    bool cut = true;  // all nodes may be cut off from the others
  };
  static void add_inside(const NodeContent& content, Inside* inside);
  void set(const ExecRef& exec, Ranges ranges, const Inside& inside);
  CUresult collect(const GraphRef& graph, int depth, size_t* seen, Ranges* ranges, Inside* inside) const;
  static void add(const Node* node, const NodeContent& content, Ranges* ranges);
  static void add_steps(std::span<const ExecStep> steps, Ranges* ranges, Inside* inside);
  static void count_copies(const Ranges& ranges, Exec* exec);

  Device* const device_;
  const GuestMemory* const memory_;
  mutable std::mutex mutex_;
  std::map<const Exec*, std::pair<std::weak_ptr<Exec>, Ranges>> execs_;  // guarded by mutex_
};

}  // namespace bandsaw::runner
