// What a runner says of the kernel of which it is about to ask for a time slice, so that vgpud can choose whose grid
// slices run beside each other, and how large they are (vgpu-sched/slice). One record for each of its gates' slots, on
// the grant page (gate_link.h). Of short work it may say what its first launch needs (`brief`), so that vgpud can
// forecast whether it finds room.
//
// Written by the runner before it counts up `asked`, read by the arbiter once for each ask; and while persistent blocks
// of a plan are under way, to tell how far they are. Nothing of it is believed: the arbiter copies it, bounds it, and
// charges by what it measures. A record that changes under its eyes, or makes no sense, is none: then the ask is
// granted as that of short work is.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace bandsaw {

// How a kernel is rewritten.
enum class KernelVariant : uint32_t {
  kSliced = 0,      // launched in grid slices
  kPersistent = 1,  // launched as persistent blocks, which claim blocks of the grid from a counter, and stop when told
  kCounting = 2,    // sliced, and counts what its threads do; nobody is told of it
};

inline constexpr uint32_t kDescriptorParts = 1 << 16;  // of the fractions below

struct KernelDescriptor {
  uint64_t call = 0;      // another number for each launch; 0: nothing is described
  uint64_t shape = 0;     // of code, block and dynamic shared memory: the same for the same, in all processes
  uint64_t stream = 0;    // within the process
  uint64_t blocks = 0;    // of the launch
  uint64_t left = 0;      // of these, not issued yet; of persistent blocks: not claimed yet
  uint64_t minimum = 0;   // the least grid slice that keeps slicing cheap; 0: may not be sliced, yet
  uint64_t block_ps = 0;  // of the whole GPU's time for a block, as far as it is known; 0: it is not
  uint32_t asked = 0;     // the gate's `asked` that it belongs to
  uint32_t variant = 0;   // KernelVariant
  uint32_t threads = 0, registers = 0, shared_bytes = 0;  // of a block; registers of a thread
  uint32_t most_resident = 0;                             // blocks on an SM, as the device says; 0: not known
  // Accesses of global memory, of all instructions, in kDescriptorParts: counted, or by the instruction mix.
  uint32_t memory = 0;
  uint32_t scattered = 0;     // of these, whose lanes ask for bytes that are no neighbours; by the instruction mix
  uint32_t leaves_sms = 0;    // kPersistent: not 0: single SMs can be taken from it (Gate::leave_sms)
  uint32_t half_speed = 0;    // speed with half the resident blocks, in kDescriptorParts; 0: not known
  uint32_t resident = 0;      // kPersistent, of what is under way: on an SM, as planned; 0: as many as is best
  uint32_t best = 0;          // kPersistent: that many; 0: not known
  uint32_t alone = 0;         // not 0: it is to run alone, so that it is known what that takes
  uint32_t brief = 0;         // not 0: short work of a time slice that begins with such a launch; `call` is 0 then
  uint64_t instructions = 0;  // of a block's warps, as counted; 0: not known
  uint64_t bytes = 0;         // of global memory that a block's threads ask for; 0: not known
  int64_t seen_ns = 0;        // CLOCK_MONOTONIC: when so many were `left`, of what is under way; 0: it is not
  char kernel[48]{};          // for people; may lack an end

  bool operator==(const KernelDescriptor&) const = default;
};
static_assert(std::is_trivially_copyable_v<KernelDescriptor> && sizeof(KernelDescriptor) % sizeof(uint64_t) == 0);

struct alignas(64) KernelDescriptorSlot {
  std::atomic<uint32_t> version;  // odd while it is written
  uint32_t reserved;
  std::array<std::atomic<uint64_t>, sizeof(KernelDescriptor) / sizeof(uint64_t)> words;
};

// By one thread at a time.
inline void write_descriptor(KernelDescriptorSlot& slot, const KernelDescriptor& descriptor) {
  const auto words = std::bit_cast<std::array<uint64_t, sizeof(KernelDescriptor) / sizeof(uint64_t)>>(descriptor);
  const uint32_t version = slot.version.load(std::memory_order_relaxed) | 1;
  slot.version.store(version, std::memory_order_relaxed);
  // Who reads one of the words then finds the odd version, or a later one.
  for (size_t i = 0; i < words.size(); ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.version.store(version + 1, std::memory_order_release);
}

// False: it is being written, and no copy of it is whole. Does not wait.
inline bool read_descriptor(const KernelDescriptorSlot& slot, KernelDescriptor* descriptor) {
  std::array<uint64_t, sizeof(KernelDescriptor) / sizeof(uint64_t)> words{};
  const uint32_t version = slot.version.load(std::memory_order_acquire);
  for (size_t i = 0; i < words.size(); ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
  if (version % 2 != 0 || slot.version.load(std::memory_order_relaxed) != version) return false;
  *descriptor = std::bit_cast<KernelDescriptor>(words);
  return true;
}

}  // namespace bandsaw
