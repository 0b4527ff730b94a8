#include "backend/device/soft/context.h"

namespace bandsaw::soft {

void SoftContext::print(std::string text) {
  std::lock_guard lock(output_mutex_);
  output_bytes_ += text.size();
  output_.push_back(std::move(text));
  while (output_bytes_ > limits.printf_fifo && output_first_ + 1 < output_.size()) {
    output_bytes_ -= output_[output_first_].size();
    output_[output_first_++] = {};
  }
}

void SoftContext::flush_output() {
  if (output_bytes_ == 0) return;
  std::lock_guard lock(output_mutex_);  // held while handing over: the order of calls is the order of text
  std::string all;
  all.reserve(output_bytes_);
  for (size_t i = output_first_; i < output_.size(); ++i) all += output_[i];
  output_.clear();
  output_first_ = 0;
  output_bytes_ = 0;
  host_->print(all);
}

}  // namespace bandsaw::soft
