// What a call was given: the addresses of device memory and the handles that it asked for, in that order, and the code
// that it read. While a call is noted this is filled; when the call is made again, in another process, the same is
// given again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace bandsaw {

// For one thread.
class Given {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  Given() = default;
  // Of a call that is made again.
  Given(std::vector<uint64_t> numbers, Bytes code, uint64_t value = 0)
      : again_(true), numbers_(std::move(numbers)), value_(value), code_(std::move(code)) {}

  // Of the call that this thread makes; null: nobody notes it.
  static Given* current() { return current_; }
  class Scope {
   public:
    explicit Scope(Given* given) : before_(std::exchange(current_, given)) {}
    ~Scope() { current_ = before_; }
    Scope(const Scope&) = delete;

   private:
    Given* const before_;
  };

  bool again() const { return again_; }
  // What is to be given next; 0: nothing is left.
  uint64_t next() const { return next_ < numbers_.size() ? numbers_[next_] : 0; }
  // It has been given this.
  void give(uint64_t number) {
    if (again_) {
      ++next_;
    } else {
      numbers_.push_back(number);
    }
  }
  bool all_given() const { return next_ == numbers_.size(); }
  const std::vector<uint64_t>& numbers() const { return numbers_; }

  // What it was given beside: of a pool, how much memory; what kernels know a texture or surface by.
  uint64_t value() const { return value_; }
  void set_value(uint64_t value) { value_ = value; }

  const Bytes& code() const { return code_; }
  void set_code(Bytes code) { code_ = std::move(code); }

 private:
  static inline thread_local Given* current_ = nullptr;
  const bool again_ = false;
  std::vector<uint64_t> numbers_;
  size_t next_ = 0;
  uint64_t value_ = 0;
  Bytes code_;
};

}  // namespace bandsaw
