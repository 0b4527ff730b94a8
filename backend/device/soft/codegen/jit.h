// LLVM behind a small interface: IR module to object code, object code to running code.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device/soft/compile.h"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace bandsaw::soft {

// The processor that code is made for. Thread-safe to make; one is used by one thread.
class Target {
 public:
  using Passes = CompileOptions::Passes;
  explicit Target(const std::string& cpu, Passes passes = Passes::kBySize);  // an empty name: this machine's
  ~Target();
  bool avx2() const { return avx2_; }
  bool avx512() const { return avx512_; }
  const std::string& identity() const { return identity_; }  // processor and features, for the cache's key
  void prepare(llvm::Module* module) const;                  // layout, triple
  // Optimises and emits; the module is changed.
  std::vector<char> emit(llvm::Module* module);

 private:
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::string identity_;
  bool avx2_ = false, avx512_ = false;
  Passes passes_;
};

// Code linked at addresses of its own, object by object. Thread-safe.
class CodeSpace {
 public:
  virtual ~CodeSpace() = default;
  // The address of `symbol`, which the object defines; nullptr: it cannot be linked, and `error` says why.
  virtual void* add(const std::vector<char>& object, const std::string& symbol, std::string* error) = 0;
};
// `symbols` are added to the runtime's.
std::unique_ptr<CodeSpace> make_code_space(const std::map<std::string, uint64_t>& symbols, std::string* error);

}  // namespace bandsaw::soft
