// Small helpers of the PTX tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::ptx {

inline const std::string kHeader = ".version 9.0\n.target sm_90\n.address_size 64\n";

inline Module module_of(const std::string& items) { return parse(kHeader + items); }

// The body of one kernel with enough registers.
inline Module kernel_of(const std::string& body) {
  return module_of(".entry k(.param .u64 p) {\n.reg .b32 %r<9>, a, b; .reg .b64 %rd<9>; .reg .pred %p<9>, p, q;\n" +
                   body + "\n}");
}

inline const Function& function_at(const Module& module, size_t item) {
  return std::get<Function>(module.items.at(item));
}

// The nth instruction of the module's last function, blocks not entered.
inline const Instruction& instruction_at(const Module& module, size_t n) {
  for (const Statement& statement : std::get<Function>(module.items.back()).body->statements)
    if (const auto* instruction = statement.as<Instruction>())
      if (n-- == 0) return *instruction;
  throw std::out_of_range("no such instruction");
}

inline ParseError error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const ParseError& error) {
    return error;
  }
  ADD_FAILURE() << "parsed: " << text.substr(0, 200);
  return {0, 0, ""};
}

inline const char* const kSamples[] = {"memory", "calls", "groups", "numbers", "debug",
                                       "lines",  "odd",   "modern", "managed", "rewrites"};

inline std::string sample(const std::string& name) {
  std::ifstream file(std::string(SAMPLES) + "/" + name + ".ptx");
  if (!file) ADD_FAILURE() << "no sample " << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace bandsaw::ptx
