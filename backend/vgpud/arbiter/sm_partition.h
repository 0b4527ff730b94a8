// The SMs that an MPS virtual GPU has to itself. Work on them neither delays others nor waits for them.
#pragma once

namespace bandsaw {

class SmPartition {
 public:
  // The part of the GPU's SMs; 0: none.
  void set(double part) {
    if (part_ == 0) fresh_ = false;
    part_ = part;
  }
  double part() const { return part_; }
  // To be called before each look at holds(). A program that began before keeps the SMs that it began with.
  void review(bool has_programs) { fresh_ = part_ > 0 && (fresh_ || !has_programs); }
  // Every program that runs began on them.
  bool holds() const { return part_ > 0 && fresh_; }

 private:
  double part_ = 0;
  bool fresh_ = false;
};

}  // namespace bandsaw
