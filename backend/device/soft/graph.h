// Graphs, their nodes, executable graphs and captures. Guarded by the scheduler's mutex, but for an
// executable graph's steps.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device/device.h"
#include "backend/device/soft/context.h"
#include "backend/device/soft/op.h"

namespace bandsaw::soft {

class SoftGraph;
struct Condition;
struct ExecBody;

class SoftNode : public Node, public std::enable_shared_from_this<SoftNode> {
 public:
  std::weak_ptr<SoftGraph> graph;
  NodeContent content;
  std::vector<SoftNode*> dependencies, dependents;  // of the same graph
  std::weak_ptr<SoftNode> original;                 // what a clone's node was made from
  std::shared_ptr<void> reservation;                // an allocation node's address range
  std::shared_ptr<Condition> condition;             // of a conditional node, with the graphs to run
  std::vector<std::shared_ptr<SoftGraph>> bodies;
};
using SoftNodeRef = std::shared_ptr<SoftNode>;

class SoftGraph : public Graph, public std::enable_shared_from_this<SoftGraph> {
 public:
  std::vector<SoftNodeRef> nodes;                             // in the order of adding
  std::map<uint64_t, std::shared_ptr<Condition>> conditions;  // by handle
  bool moved = false;                                         // it is a node's, and was no copy

  // Whether `to` can be reached from `from` along edges.
  static bool reaches(const SoftNode* from, const SoftNode* to);
  static bool has_edge(const SoftNode& from, const SoftNode& to);
  static void add_edge(SoftNode& from, SoftNode& to);
  static bool remove_edge(SoftNode& from, SoftNode& to);
  bool has_allocations() const;
  // Whether it is `other`, or has it within a node; also if graphs lie in it more than `depth` deep.
  bool holds(const SoftGraph* other, int depth) const;
  std::shared_ptr<SoftGraph> clone() const;
  std::vector<SoftNodeRef> in_order() const;  // dependencies first; without nodes that depend on themselves
  bool has_cycle() const;                     // here, or within a node
};
using SoftGraphRef = std::shared_ptr<SoftGraph>;

// Copies a node's content; its launch points into its own parameter bytes.
NodeContent copy_content(const NodeContent& content);

// A graph as it was when instantiated, child graphs unfolded.
class SoftExec : public Exec {
 public:
  struct Step {
    NodeContent content;  // child graphs become empty steps before and after their nodes
    SoftNodeRef node;     // whose snapshot this is; null at a child graph's end
    std::shared_ptr<void> reservation;
    std::vector<uint32_t> after;  // earlier steps
    std::shared_ptr<Condition> condition;
    std::vector<std::shared_ptr<const ExecBody>> bodies;  // of a conditional node
    bool enabled = true;
  };
  SoftContextRef context;
  uint64_t flags = 0;
  std::vector<Step> steps;  // dependencies first
  std::vector<uint32_t> leaves;
  std::mutex steps_mutex;  // guards steps; taken before the scheduler's mutex
  OpRef last;              // end of the last launch: launches of one exec do not overlap
};

// Appends `graph` to `steps`, after the step `before` if it is not negative; the indices of the last steps come back.
std::vector<uint32_t> unfold(const SoftGraph& graph, int64_t before, std::vector<SoftExec::Step>* steps);

// The graph that the steps came from, for a launch that is captured.
SoftGraphRef fold(const SoftExec& exec);

// A capture in progress: work of its streams becomes nodes.
class Capture {
 public:
  uint64_t id = 0;
  SoftGraphRef graph;
  CUstreamCaptureMode mode{};
  const SoftStream* origin = nullptr;
  std::vector<std::weak_ptr<SoftStream>> streams;  // with the origin
  std::vector<NodeRef> left;                       // what forked streams captured last before they were destroyed
  bool invalid = false, ended = false;
};

inline SoftGraph& as(const GraphRef& graph) { return static_cast<SoftGraph&>(*graph); }
inline SoftNode& as(const NodeRef& node) { return static_cast<SoftNode&>(*node); }
inline SoftExec& as(const ExecRef& exec) { return static_cast<SoftExec&>(*exec); }

}  // namespace bandsaw::soft
