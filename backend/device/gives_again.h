// A device that gives a process, made anew by calls that are made again (given.h), the addresses that another one had.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device/device.h"
#include "backend/device/given.h"

namespace bandsaw {

// What an executable graph does, in an order that keeps its edges; the graphs that its nodes run are unfolded.
struct ExecStep {
  NodeContent content;  // of a node that runs a graph: its type alone
  NodeRef node;         // that this was read from; null: it has gone, or there was none
  bool end = false;     // of what a node runs, and nothing else
  bool enabled = true;
  std::vector<uint32_t> after;                // earlier steps
  std::vector<std::vector<ExecStep>> bodies;  // of a conditional node
};

// What kernels' malloc has given out.
struct HeapAgain {
  uint64_t base = 0, bytes = 0;  // 0 bytes: there is none yet
  std::vector<uint64_t> live;    // pairs: address, bytes
};

// What graphs have between them, and may outlive any of them.
struct GraphMemoryAgain {
  uint64_t address = 0, bytes = 0;  // of an allocation node
  uint32_t claims = 0;              // launches that have it and have not freed it
  uint32_t live = 0;                // not 0: the program may use it
};
struct ConditionAgain {
  uint64_t handle = 0;
  uint32_t initial = 0, value = 0;
  uint32_t assigns = 0, used = 0;  // as flags
};
struct SharedByGraphs {
  std::vector<GraphMemoryAgain> memory;
  std::vector<ConditionAgain> conditions;
};

// Addresses that a program has reserved, and the memory that it has mapped there.
struct MappedAgain {
  uint64_t address = 0, bytes = 0, offset = 0;
  MemoryRef memory;
  uint32_t access = 0;  // as memory_set_access()
};
struct ReservedAgain {
  uint64_t address = 0, bytes = 0;
  std::vector<MappedAgain> mappings;
};

// Variables of code that was loaded, where its device has put them.
struct VariableAgain {
  std::string name;
  uint64_t address = 0, bytes = 0;
};
struct CodeAgain {
  std::shared_ptr<Object> code;  // a library or module
  Given::Bytes image;            // that it was loaded from
  std::vector<VariableAgain> variables;
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
  // The addresses that the program has reserved; in words what could not be made again, empty: nothing.
  virtual std::string reserved(std::vector<ReservedAgain>* all) = 0;
  virtual CUresult reserve_again(uint64_t address, uint64_t bytes) = 0;
  // Memory that the program has created: by what its contents are known (away_memory.h), and how much it is; 0: others
  // may have it too.
  virtual uint64_t memory_key(const MemoryRef& memory, uint64_t* bytes) = 0;
  // The same memory with the same key. OUT_OF_MEMORY, INVALID_VALUE.
  virtual CUresult memory_make(uint64_t key, uint64_t bytes, MemoryRef* memory) = 0;
  // Where memory lies that memory_leave() leaves on the device it is taken along from now on, until memory_return():
  // variables, which are listed, and memory that the program has created. In words what cannot, empty: nothing.
  virtual std::string take_along(std::span<CodeAgain> /*all*/) { return {}; }
  // What another process has taken along: its variables lie at the same addresses here, and their values will come. An
  // error names one that lies elsewhere.
  virtual Status expect_along(std::span<const CodeAgain> /*all*/) { return {}; }
  virtual HeapAgain heap_of(const ContextRef& context) = 0;
  // After the context's limits are what they were. INVALID_VALUE: it is none that could have been.
  virtual CUresult heap_make(const ContextRef& context, const HeapAgain& heap) = 0;
  // How long ago the event was recorded, in nanoseconds; nothing: it was not.
  virtual std::optional<int64_t> event_age(const EventRef& event) = 0;
  virtual CUresult event_set_age(const EventRef& event, int64_t nanoseconds) = 0;
  virtual SharedByGraphs shared_by_graphs() = 0;
  // The same again, before any memory or graph; it goes with the graphs that have it after end_shared(). Nothing of it
  // is believed. Nodes that are added meanwhile, by a thread with a Given of another call, may have it.
  virtual CUresult make_shared_by_graphs(const SharedByGraphs& shared) = 0;
  virtual void end_shared_by_graphs() = 0;
  // A graph's conditions, by their handles, whether nodes have them or not.
  virtual std::vector<uint64_t> conditions_of(const GraphRef& graph) = 0;
  virtual CUresult set_conditions(const GraphRef& graph, std::span<const uint64_t> handles) = 0;
  // The node that this one is a copy of, while that lives; null: of none.
  virtual NodeRef original_of(const NodeRef& node) = 0;
  virtual void set_original(const NodeRef& node, const NodeRef& original) = 0;
  virtual void exec_steps(const ExecRef& exec, std::vector<ExecStep>* steps, uint64_t* flags) = 0;
  virtual CUresult exec_make(const ContextRef& context, uint64_t flags, std::span<const ExecStep> steps,
                             ExecRef* exec) = 0;
};

}  // namespace bandsaw
