// Copy nodes between the device and memory that only the program sees.
//
// The runner cannot read a program's own pages when a graph runs, so the program's callback thread moves the bytes
// between them and a piece of shared memory. On the wire such a node is a child graph, host function and copy; the
// program sees one copy node with the parameters that it gave.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "guest-driver/libcuda/api/graph.h"
#include "guest-driver/libcuda/api/transfer.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/shared_memory.h"

namespace bandsaw::libcuda {

// The shared memory and the program's side of one such copy. Thread-safe after `make`.
class StagedCopy {
 public:
  ~StagedCopy();

  // `copy` is resolved; `to_program`, `from_program` say which ends are the program's own memory.
  static CUresult make(const vgpu_copy& copy, bool to_program, bool from_program, std::shared_ptr<StagedCopy>* made);

  bool to_program() const { return to_program_; }
  bool from_program() const { return from_program_; }

  // Makes the child graph that does it, to be destroyed by the caller once a node has been made of it.
  CUresult make_graph(Call& call, uint64_t* graph);

  // Makes a node's child graph, which another copy made, do this one. Their ends must be of the same sides.
  CUresult change_graph(Call& call, uint64_t graph) const;

 private:
  static void gather(void* self);
  static void scatter(void* self);
  static void move(void* self);  // both ends are the program's
  vgpu_copy_end staged_end() const;
  vgpu_host_node host_node() const;
  vgpu_copy_node copy_node(uint64_t context) const;

  vgpu_copy copy_{};
  bool to_program_ = false, from_program_ = false;
  SharedBlock block_{};
};

// A copy as a node's payload: a MEMCPY node's, or with `staged` set a GRAPH node's (destroy `child` after use).
struct CopyPayload {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_MEMCPY;
  std::vector<std::byte> payload;
  std::shared_ptr<StagedCopy> staged;
  uint64_t child = 0;
};
CUresult copy_payload(Call& call, const vgpu_copy& copy, Side destination, Side source, CUcontext context,
                      CopyPayload* made);

// Takes note of what `node` of `graph` copies; `staged` is null where both ends are the host's.
CUresult remember_copy(GraphRecord* graph, uint64_t node, const std::shared_ptr<StagedCopy>& staged,
                       const CUDA_MEMCPY3D& asked);
std::shared_ptr<StagedCopy> staged_copy_of(CUgraphNode node);

// What `from` keeps alive, `to` keeps alive too. Either may be null.
void keep_copies(GraphRecord* from, GraphRecord* to);
void forget_graph(GraphRecord* graph);
void forget_node(uint64_t node);

// Adds such a copy to the graph that `stream` captures.
CUresult capture_pageable_copy(Call& call, const vgpu_copy& copy, Side destination, Side source, uint64_t stream);

}  // namespace bandsaw::libcuda
