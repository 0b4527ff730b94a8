#include "guest-driver/libcuda/core/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

namespace bandsaw::libcuda {
namespace {

constexpr int kBits = 8 * sizeof(unsigned long);

// The mask of one node. False: there is no room for it.
template <size_t N>
bool put_node(int node, unsigned long (&mask)[N]) {
  if (node < 0 || static_cast<size_t>(node) >= N * kBits) return false;
  mask[node / kBits] = 1ul << node % kBits;
  return true;
}

}  // namespace

bool has_numa_node(int node) {
  char path[64];
  std::snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
  return node == 0 || access(path, F_OK) == 0;
}

void prefer_node(uint64_t address, uint64_t bytes, int node) {
  unsigned long mask[16]{};
  if (put_node(node, mask)) syscall(SYS_mbind, address, bytes, MPOL_PREFERRED, mask, sizeof(mask) * 8, 0);
}

NodePreference::NodePreference(int node) {
  unsigned long mask[kWords]{};
  if (!put_node(node, mask) || syscall(SYS_get_mempolicy, &mode_, mask_, sizeof(mask_) * 8, nullptr, 0) != 0) return;
  changed_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, sizeof(mask) * 8) == 0;
}

NodePreference::~NodePreference() {
  if (changed_) syscall(SYS_set_mempolicy, mode_, mask_, sizeof(mask_) * 8);
}

}  // namespace bandsaw::libcuda
