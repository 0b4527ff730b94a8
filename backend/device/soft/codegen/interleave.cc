// A few elements of each lane that lie side by side in memory, as of ld.v4: into a vector of each, and back. In steps
// that take two registers of the processor: LLVM takes up to 40 ms for one shuffle over all of them.
#include <llvm/Analysis/VectorUtils.h>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

using Values = std::vector<V>;

unsigned length(V v) { return llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements(); }

// Every second one of the elements of two vectors.
V every_second(llvm::IRBuilder<>& b, V first, V second, unsigned from) {
  return b.CreateShuffleVector(first, second, llvm::createStrideMask(from, 2, length(first)));
}

// Elements of one and of the other in turns, of the first or second half of both.
V in_turns(llvm::IRBuilder<>& b, V even, V odd, unsigned half) {
  const unsigned n = length(even);
  const auto order = llvm::createInterleaveMask(n, 2);
  return b.CreateShuffleVector(even, odd, llvm::ArrayRef<int>(order).slice(size_t{half} * n, n));
}

// `registers`: what lies there, 2 or 4 vectors, with as many elements of each lane as there are vectors. Gives the
// first elements of the lanes, then the second ones, and so on.
Values separated(llvm::IRBuilder<>& b, const Values& registers) {
  if (registers.size() == 1) return registers;
  Values result(registers.size());
  for (unsigned from : {0u, 1u}) {
    Values seconds;
    for (size_t i = 0; i < registers.size(); i += 2)
      seconds.push_back(every_second(b, registers[i], registers[i + 1], from));
    const Values apart = separated(b, seconds);
    for (size_t i = 0; i < apart.size(); ++i) result[2 * i + from] = apart[i];
  }
  return result;
}

// The reverse.
Values interleaved(llvm::IRBuilder<>& b, const Values& elements) {
  if (elements.size() == 1) return elements;
  Values half[2];
  for (size_t i = 0; i < elements.size(); ++i) half[i % 2].push_back(elements[i]);
  const Values even = interleaved(b, half[0]), odd = interleaved(b, half[1]);
  Values result;
  for (size_t i = 0; i < even.size(); ++i) {
    for (unsigned of : {0u, 1u}) result.push_back(in_turns(b, even[i], odd[i], of));
  }
  return result;
}

}  // namespace

// Of how many lanes one register of the processor has such elements; 16 at most.
unsigned Emitter::lanes_of_register(unsigned bytes) const { return std::min((m_->avx512 ? 64u : 32u) / bytes, 16u); }

// Two runs of 16 lanes' elements, `count` of each lane.
std::vector<V> Emitter::load_side_by_side(V places[2], unsigned bytes, unsigned count) {
  const unsigned at_once = lanes_of_register(bytes);
  auto* type = llvm::FixedVectorType::get(b_.getIntNTy(bytes * 8), at_once);
  std::vector<std::vector<V>> parts(count);
  for (unsigned lane = 0; lane < 32; lane += at_once) {
    std::vector<V> registers;
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t before = (uint64_t{lane % 16} * count + uint64_t{i} * at_once) * bytes;
      V p = b_.CreateConstGEP1_64(b_.getInt8Ty(), places[lane / 16], before);
      registers.push_back(b_.CreateAlignedLoad(type, p, llvm::Align(bytes)));
    }
    const std::vector<V> apart = separated(b_, registers);
    for (unsigned i = 0; i < count; ++i) parts[i].push_back(apart[i]);
  }
  std::vector<V> values;
  for (const std::vector<V>& part : parts) values.push_back(llvm::concatenateVectors(b_, part));
  return values;
}

void Emitter::store_side_by_side(V places[2], unsigned bytes, const std::vector<V>& values) {
  const unsigned at_once = lanes_of_register(bytes);
  for (unsigned lane = 0; lane < 32; lane += at_once) {
    std::vector<V> elements;
    for (V v : values)
      elements.push_back(b_.CreateShuffleVector(splat(v), llvm::createSequentialMask(lane, at_once, 0)));
    uint64_t before = uint64_t{lane % 16} * values.size() * bytes;
    for (V filled : interleaved(b_, elements)) {
      b_.CreateAlignedStore(filled, b_.CreateConstGEP1_64(b_.getInt8Ty(), places[lane / 16], before),
                            llvm::Align(bytes));
      before += uint64_t{at_once} * bytes;
    }
  }
}

}  // namespace bandsaw::soft
