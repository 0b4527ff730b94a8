// LLVM behind a small interface: IR module to object code, object code to running code.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace bandsaw::soft {

// The processor that code is made for. Thread-safe to make; one is used by one thread.
class Target {
 public:
  explicit Target(const std::string& cpu);  // empty: this machine's
  ~Target();
  bool avx512() const { return avx512_; }
  const std::string& identity() const { return identity_; }  // processor and features, for the cache's key
  void prepare(llvm::Module* module) const;                  // layout, triple
  // Optimises and emits; the module is changed.
  std::vector<char> emit(llvm::Module* module);

 private:
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::string identity_;
  bool avx512_ = false;
};

// Object code linked at addresses of its own. `symbols` are added to the runtime's.
class LoadedObject {
 public:
  virtual ~LoadedObject() = default;
  virtual void* find(const std::string& symbol) const = 0;  // nullptr if absent
};
std::unique_ptr<LoadedObject> load_object(const std::vector<char>& object,
                                          const std::map<std::string, uint64_t>& symbols,
                                          const std::vector<std::string>& wanted, std::string* error);

}  // namespace bandsaw::soft
