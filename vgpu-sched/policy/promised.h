// What virtual GPUs are promised of one engine, together: the one place where it is said how much that may be.
#pragma once

#include <span>

#include "vgpu-sched/policy/types.h"

namespace bandsaw::sched {

// Sums over virtual GPUs, in percent.
struct Promised {
  int percent = 0;
  int reservation = 0;

  void add(const Share& share) {
    percent += share.percent;
    reservation += share.reservation;
  }
};

// Whether shares, or reservations, of this sum leave one engine enough for all.
bool within_engine(int sum);
// kBadShare: not a share by itself. kOversubscribed: not beside what the others are promised.
Error check_share(const Share& share, const Promised& others);

// The part of the engine that a share is worth, 0 to 1, where each percent counts `scale`: within reservation and cap.
double part_of(const Share& share, double scale);
// The scale with which these shares fill the engine, each within its reservation and cap; 1, if caps leave some of it.
double scale_to_fill(std::span<const Share> shares);

}  // namespace bandsaw::sched
