// Graphs of a guest process as numbers and bytes, for another runner (process_state.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/device/gives_again.h"

namespace bandsaw::runner {

inline constexpr uint32_t kNoGraph = ~uint32_t{0};

struct NodeState {
  uint64_t handle = 0;  // 0: the program has asked for none
  uint32_t type = 0;
  uint32_t child = kNoGraph;  // the place in the list of the graph that it runs, before its own graph's
  std::string payload;        // handlers/node_payload.h; of one that runs a graph: nothing
  uint32_t original_graph = kNoGraph, original_node = 0;  // what it is a copy of, if that lives
  std::vector<uint32_t> bodies;                           // of a conditional node: as `child`
};

struct GraphState {
  uint64_t handle = 0, owner = 0;
  bool inner = false;  // a node's
  bool body = false;   // a conditional node's
  std::vector<NodeState> nodes;
  std::vector<uint32_t> edges;       // pairs: from, to
  std::vector<uint64_t> conditions;  // by their handles
};

// A step of an executable graph, which may have changed since its node was read, or outlive it.
struct StepState {
  uint32_t graph = kNoGraph, node = 0;  // where its node is, if that lives
  uint32_t type = 0;
  bool end = false, enabled = true;  // `end`: of what a node runs
  std::string payload;
  std::vector<uint32_t> after;                 // earlier steps
  std::vector<std::vector<StepState>> bodies;  // of a conditional node
};

struct ExecState {
  uint64_t handle = 0, context = 0, flags = 0;
  std::vector<StepState> steps;
};

struct GraphStates {
  SharedByGraphs shared;
  std::vector<GraphState> graphs;
  std::vector<ExecState> execs;
};

}  // namespace bandsaw::runner
