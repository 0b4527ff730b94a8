// What a guest process has of graphs, for another runner, and the same graphs there.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/device/device.h"
#include "backend/device/gives_again.h"
#include "backend/runner/memory/guest_memory.h"
#include "backend/runner/objects/objects.h"
#include "backend/runner/saved/graph_state.h"
#include "memory/base/status.h"

namespace bandsaw::runner {

// The handles of all kernels that a launch of the graph may run.
std::set<uint64_t> kernels_of(Device& device, const HandleTable& table, const GraphRef& graph);

// Of one moment: nobody changes a graph meanwhile. The device is one that gives_again().
class GraphsAgain {
 public:
  using Made = std::function<void(const ExecRef&, const ContextRef&, uint64_t flags, std::span<const ExecStep>)>;
  GraphsAgain(Device* device, Objects* objects, const GuestMemory* memory)
      : device_(*device), objects_(*objects), memory_(*memory) {}

  // All graphs, and whose handles they are. In words what could not be made again, empty: nothing.
  std::string describe(GraphStates* states, std::set<uint64_t>* handles);
  // What they have between them; before any memory of the runner's own.
  Status make_shared(const SharedByGraphs& shared);
  // Kernels, events and contexts are here already. Nothing of `states` is believed. `made` is told of executable
  // graphs.
  Status make(const GraphStates& states, const Made& made);

 private:
  std::string add(const GraphRef& graph, int depth, bool body, uint32_t* place);
  std::string add_node(const NodeRef& node, const NodeContent& content, int depth, NodeState* state);
  std::string add_exec(uint64_t handle);
  std::string add_steps(std::span<const ExecStep> steps, std::vector<StepState>* states);
  void add_originals();
  std::string encode(const NodeContent& content, std::string* payload);

  CUresult build(const GraphStates& states, uint32_t place, const GraphRef& graph);
  CUresult build_node(const GraphStates& states, uint32_t place, const NodeState& state, const GraphRef& graph,
                      NodeRef* node);
  CUresult build_bodies(const GraphStates& states, uint32_t place, const NodeState& state, const NodeRef& node);
  CUresult settle(const GraphStates& states, uint32_t place, const GraphRef& graph);
  CUresult settle_inner(const GraphStates& states, const NodeState& state, const NodeRef& node);
  CUresult make_originals(const GraphStates& states);
  CUresult make_steps(const std::vector<StepState>& states, std::vector<ExecStep>* steps);
  CUresult make_exec(const ExecState& state, const Made& made);
  CUresult decode(uint32_t type, const std::string& payload, NodeContent* content) const;

  Device& device_;
  Objects& objects_;
  const GuestMemory& memory_;
  GraphStates* states_ = nullptr;                                  // that are being described
  std::map<const Node*, std::pair<uint32_t, uint32_t>> place_of_;  // graph and node
  std::vector<std::pair<NodeRef, NodeRef>> copies_;                // nodes, and what they are copies of
  std::vector<int> depths_;                                        // how deep graphs lie in each, by their places
  std::vector<GraphRef> built_;                                    // by their places; null: a node has it by now
  std::set<uint32_t> bodies_built_;
  std::map<uint32_t, std::vector<NodeRef>> nodes_;  // of those that live, by their places
};

}  // namespace bandsaw::runner
