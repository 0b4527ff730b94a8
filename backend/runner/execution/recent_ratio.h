// How two sums compare, of which the last part counts.
#pragma once

namespace bandsaw::runner {

class RecentRatio {
 public:
  // So much of what it is held against counts.
  explicit RecentRatio(double remembered) : remembered_(remembered) {}

  void add(double more, double more_against) {
    sum_ += more;
    against_ += more_against;
    if (against_ <= remembered_) return;
    sum_ *= remembered_ / against_;
    against_ = remembered_;
  }
  bool known() const { return against_ > 0; }
  double ratio() const { return known() ? sum_ / against_ : 0; }

 private:
  const double remembered_;
  double sum_ = 0, against_ = 0;
};

}  // namespace bandsaw::runner
