// Cuts a long graph into segments, so that others get the compute engine in between: parts of its nodes in an order
// that keeps all edges, each an executable graph of its own. Launched one behind the other on a stream they do what the
// graph does; only nodes on both sides of a cut do not run beside each other.
//
// Segments are made on a thread of their own when the graph is first launched while others want the engine; until then,
// and where they cannot be made, it is launched whole. Not cut: graphs with other nodes than launches, fills, copies
// within the device and empty ones, with programmatic edges, or changed node by node after they were instantiated.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device/device.h"
#include "backend/runner/execution/worker_pool.h"

namespace bandsaw::runner {

// Executable graphs to be launched one behind the other, and how many nodes each has.
struct Segments {
  std::vector<ExecRef> execs;
  std::vector<uint64_t> nodes;
  uint64_t all_nodes = 0;
  EventRef ended;  // recorded behind each launch of the graph from now on
};
using SegmentsRef = std::shared_ptr<const Segments>;

// A graph may be cut if all of its nodes may.
bool may_be_cut(const NodeContent& content);

// Thread-safe.
class GraphSegments {
 public:
  static constexpr size_t kNodesLeast = 8;  // of a graph that is worth it

  explicit GraphSegments(Device* device) : device_(*device) {}

  // `exec` was made of `graph`, which may be cut, or updated to it. Keeps a copy of the graph.
  void note(const ExecRef& exec, const ContextRef& context, const GraphRef& graph);
  void note_update(const ExecRef& exec, const GraphRef& graph);
  // It has changed in another way, or has gone.
  void forget(const Exec* exec);

  // Null: not yet, or never.
  SegmentsRef find(const ExecRef& exec);
  // The same, and has them made of so many nodes each if nobody has asked before.
  SegmentsRef find_or_make(const ExecRef& exec, uint64_t nodes);
  // Before a launch, on the record loop's thread: has it wait for the last one, as launches of one graph do. True: that
  // was on the same stream, so that this one may be cut.
  bool follow(const ExecRef& exec, const StreamRef& stream);
  // Behind a launch.
  void launched(const ExecRef& exec, const StreamRef& stream);

 private:
  struct Entry {
    std::weak_ptr<Exec> exec;
    ContextRef context;
    GraphRef graph;        // a copy
    SegmentsRef segments;  // null: not made
    bool asked = false;
    std::weak_ptr<Stream> last;  // that it was launched on
  };

  Entry* entry_of(const ExecRef& exec);
  SegmentsRef make(const ContextRef& context, const GraphRef& graph, uint64_t most);

  Device& device_;
  std::mutex mutex_;
  std::map<const Exec*, Entry> entries_;  // guarded by mutex_
  size_t sweep_at_ = 64;                  // guarded by mutex_: entries whose graphs have gone are looked for then
  WorkerPool worker_{1};                  // finishes before the rest goes
};

}  // namespace bandsaw::runner
