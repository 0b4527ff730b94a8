#include "backend/runner/wire/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace bandsaw::runner {

void Output::print(std::string_view text) {
  if (text.empty()) return;
  std::lock_guard lock(mutex_);
  text_ += text;
  if (text_.size() - begin_ > kMax) {
    // Cut at a line's end, and a good piece at once, so that the cost is spread.
    size_t cut = text_.size() - kMax + kMax / 8;
    if (const size_t line = text_.find('\n', cut); line != std::string::npos) cut = line + 1;
    dropped_ += cut - begin_;
    text_.erase(0, cut);
    begin_ = 0;
  }
  pending_.store(true, std::memory_order_release);
}

std::string Output::fetch(size_t bytes) {
  std::lock_guard lock(mutex_);
  std::string result;
  if (dropped_ != 0) result = fmt::format("[{} bytes of kernel output were lost]\n", std::exchange(dropped_, 0));
  if (result.size() < bytes) {
    const size_t taken = std::min(bytes - result.size(), text_.size() - begin_);
    result.append(text_, begin_, taken);
    begin_ += taken;
  }
  if (begin_ == text_.size()) {
    text_.clear();
    begin_ = 0;
    pending_.store(false, std::memory_order_release);
  }
  return result;
}

std::string Output::copy() {
  std::lock_guard lock(mutex_);
  return text_.substr(begin_);
}

}  // namespace bandsaw::runner
