// One instruction at a time against a host function, over edge values and random ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/device/soft/compile.h"

namespace bandsaw::soft::test {

// `code` reads %a %b %c (32 bits), %A %B %C (64), %ha %hb %hc (16), and writes %d, %D or %hd (or %p for `p`), as
// `result` says: 'd', 'D', 'h', 'p'.
struct Case {
  std::string code;
  char result;
  std::function<uint64_t(uint64_t a, uint64_t b, uint64_t c)> want;
  bool nan_is_nan = false;  // f32 ('d') or f64 ('D') results: any NaN equals any other
};

// Compiles all cases as kernels of one module and runs each on `values`^3, cut down to a few thousand triples.
void check_cases(const std::vector<Case>& cases, const std::vector<uint64_t>& values,
                 CompileOptions::Passes passes = CompileOptions::Passes::kBySize);

std::vector<uint64_t> integer_values();
std::vector<uint64_t> float_values();  // f32 patterns
std::vector<uint64_t> double_values();
std::vector<uint64_t> half_values();

}  // namespace bandsaw::soft::test
