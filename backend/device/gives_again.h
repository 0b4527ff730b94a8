// A device that gives a process, made anew by calls that are made again (given.h), the addresses that another one had.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device/device.h"

namespace bandsaw {

// What an executable graph does, in an order that keeps its edges; the graphs that its nodes run are unfolded.
struct ExecStep {
  NodeContent content;  // of a node that runs a graph: its type alone
  NodeRef node;         // that this was read from; null: it has gone, or there was none
  bool end = false;     // of what a node runs, and nothing else
  bool enabled = true;
  std::vector<uint32_t> after;  // earlier steps
};

class GivesAgain {
 public:
  virtual ~GivesAgain() = default;
  // Whether memory that was given to a noted call begins there.
  virtual bool has_memory(uint64_t address) = 0;
  // Whether all of it is memory of the program's, also while that is away.
  virtual bool reaches(uint64_t address, uint64_t bytes) = 0;
  // What the program has here and no noted call was given, in words; empty: nothing. Also while memory is away.
  virtual std::string not_given() = 0;
  // How long ago the event was recorded, in nanoseconds; nothing: it was not.
  virtual std::optional<int64_t> event_age(const EventRef& event) = 0;
  virtual CUresult event_set_age(const EventRef& event, int64_t nanoseconds) = 0;
  // Why this graph cannot be made again from its nodes and edges, in words; empty: it can. `inner`: a node runs it.
  virtual std::string not_again(const GraphRef& graph, bool inner) = 0;
  // The same for an executable graph, if it cannot be made of these steps.
  virtual std::string exec_steps(const ExecRef& exec, std::vector<ExecStep>* steps, uint64_t* flags) = 0;
  virtual CUresult exec_make(const ContextRef& context, uint64_t flags, std::span<const ExecStep> steps,
                             ExecRef* exec) = 0;
};

}  // namespace bandsaw
