#include "vgpu-sched/ptx/initial_value.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace bandsaw::ptx {
namespace {

class Writer {
 public:
  Writer(const Variable& variable, const BytesInitial& give, const AddressInitial& address)
      : variable_(variable),
        size_(variable.bytes()),
        give_(give),
        address_(address),
        element_(std::max(1u, bits_of(variable.type) / 8)) {
    // A vector's elements count as one more dimension.
    uint64_t stride = element_;
    if (variable.vector > 1) {
      strides_.push_back(stride);
      stride *= variable.vector;
    }
    for (size_t i = variable.dimensions.size(); i-- > 0;) {
      strides_.push_back(stride);
      stride *= variable.dimensions[i].value_or(1);
    }
    std::reverse(strides_.begin(), strides_.end());
  }

  void write(const Initializer& initial, uint64_t offset, size_t depth) {
    if (const auto* list = std::get_if<InitializerList>(&initial.value)) {
      const uint64_t step = depth < strides_.size() ? strides_[depth] : element_;
      // Forged dimensions may overflow; whatever comes out is held against the size below.
      for (size_t i = 0; i < list->elements.size(); ++i) write(list->elements[i], offset + i * step, depth + 1);
      return;
    }
    if (offset > size_ || element_ > size_ - offset)
      throw InitialError(variable_.name + ": more initial values than elements");
    if (const auto* number = std::get_if<Integer>(&initial.value)) put(offset, bits(*number));
    if (const auto* number = std::get_if<Float>(&initial.value)) put(offset, bits(*number));
    if (const auto* address = std::get_if<SymbolAddress>(&initial.value)) address_(offset, element_, *address);
  }

 private:
  uint64_t bits(const Integer& number) const {
    if (variable_.type == Type::kF64) return std::bit_cast<uint64_t>(static_cast<double>(number.value()));
    if (variable_.type == Type::kF32) return std::bit_cast<uint32_t>(static_cast<float>(number.value()));
    return number.bits;
  }
  // In 32 bits a double is converted; in 64 bits a single stays the bits it is.
  uint64_t bits(const Float& number) const {
    if (element_ == 4 && number.is_double) return std::bit_cast<uint32_t>(static_cast<float>(number.value()));
    return number.bits;
  }
  void put(uint64_t offset, uint64_t bits) {
    static_assert(std::endian::native == std::endian::little);
    give_(offset, std::as_bytes(std::span(&bits, 1)).first(std::min<size_t>(sizeof bits, element_)));
  }

  const Variable& variable_;
  const uint64_t size_;  // bytes
  const BytesInitial& give_;
  const AddressInitial& address_;
  const uint32_t element_;         // bytes
  std::vector<uint64_t> strides_;  // bytes, the outermost dimension's first
};

}  // namespace

void write_initial(const Variable& variable, const BytesInitial& bytes, const AddressInitial& address) {
  if (variable.initial) Writer(variable, bytes, address).write(*variable.initial, 0, 0);
}

}  // namespace bandsaw::ptx
