// Stands in for the compiler in builds without LLVM: loading code fails and says why.
#include "backend/device/soft/compile.h"

namespace bandsaw::soft {

std::unique_ptr<Program> compile(std::string_view, const CompileOptions&, std::string* log) {
  *log = "this build has no PTX compiler (LLVM 19 was not found)";
  return nullptr;
}

}  // namespace bandsaw::soft
