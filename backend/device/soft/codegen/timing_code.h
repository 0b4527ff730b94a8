// Instructions of a kernel as the timing model counts them, and which of them record accesses.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "backend/device/soft/codegen/flat.h"
#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft {

// Where each function's instructions are: block by block, functions in the order in which they were added.
class CodeLayout {
 public:
  void add(const FlatFunction& function);
  bool empty() const { return size_ == 0; }
  bool fits() const { return size_ <= timing::kMostInstructions && registers_ <= timing::kMostRegisters; }
  // Of an instruction of a function that was added.
  uint32_t counter(const FlatFunction& function, int block, size_t op) const;
  timing::Code code() const;

 private:
  struct Part {
    const FlatFunction* function;
    std::vector<uint32_t> blocks;  // where each begins
    uint32_t first_register;
  };
  timing::Instruction instruction(const Part& part, int block, size_t op) const;

  std::vector<Part> parts_;
  std::map<const FlatFunction*, size_t> places_;
  uint32_t size_ = 0, registers_ = 0;
};

// Whether a stretch begins at the instruction: at the head of a block, and behind calls.
bool begins_stretch(const FlatBlock& block, size_t op);

// Of an instruction whose access is recorded: which argument is the address, in what space, of how many bytes.
struct RecordedAccess {
  const Arg* address;
  ptx::Space space;
  uint32_t bytes;
};
std::optional<RecordedAccess> recorded_access(const Op& op);

}  // namespace bandsaw::soft
