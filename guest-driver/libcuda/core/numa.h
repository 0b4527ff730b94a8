// NUMA nodes of the machine that the program runs on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bandsaw::libcuda {

inline constexpr int kAnyNode = -1;

bool has_numa_node(int node);

// Pages that are made there come from this node; where it has none or the kernel does not let us choose, from any.
void prefer_node(uint64_t address, uint64_t bytes, int node);

// While it stands, so do pages that the calling thread makes. Nothing changes for kAnyNode.
class NodePreference {
 public:
  explicit NodePreference(int node);
  ~NodePreference();
  NodePreference(const NodePreference&) = delete;
  NodePreference& operator=(const NodePreference&) = delete;

 private:
  static constexpr size_t kWords = 16;
  bool changed_ = false;
  int mode_ = 0;  // that the thread had
  unsigned long mask_[kWords]{};
};

}  // namespace bandsaw::libcuda
