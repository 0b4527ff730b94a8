// PTX to native code: the interface between the compiler (LLVM, this room's code generator) and the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device/code_keeper.h"
#include "backend/device/soft/timing/trace.h"
#include "backend/device/soft/warp.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::soft {

// A .global or .const variable. The executor allocates zeroed device memory for it, copies `initial` there, then
// patches `pointers` (addresses of other variables inside the initial value), before any kernel of the module runs.
struct Variable {
  std::string name;
  uint64_t bytes = 0, align = 1;
  // What the program gives of its value, inside of `bytes`; the rest is zero.
  struct Piece {
    uint64_t offset;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> initial;
  bool constant = false, managed = false;
  enum class Reference : uint8_t { kNone, kTexture, kSurface } reference = Reference::kNone;  // .texref, .surfref
  struct Pointer {
    uint64_t offset;
    std::string target;  // another variable or a function
    int64_t addend;
    bool generic;                  // generic(target) or a plain state-space address; both are the same here
    uint32_t bytes = 8;            // of the variable; a shorter one holds the value's lower bytes
    uint64_t mask = ~uint64_t{0};  // which of the address's bits, shifted down to bit 0
  };
  std::vector<Pointer> pointers;
};

struct KernelCode {
  std::string name;
  std::vector<vgpu_parameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t static_shared_bytes = 0, shared_align = 16;
  uint32_t local_bytes = 0;       // of one lane, .local variables and stacks of every callee
  uint32_t stack_bytes = 0;       // the last of them, which alloca takes from
  uint32_t registers = 0;         // an estimate for occupancy: declared 32-bit registers in use, at most 255
  uint32_t max_threads = 1024;    // .maxntid / .reqntid
  uint32_t least_blocks = 1;      // on an SM, at most as many as it takes: .minnctapersm
  uint32_t most_registers = 255;  // .maxnreg
  uint32_t required_cluster[3] = {0, 0, 0};
  bool uses_barrier = false;  // false: a block's warps may run one after another without fibers
  bool uses_grid_sync = false;
  bool uses_reserved_shared = false;  // %reserved_smem_offset
};

// A module whose kernels are compiled when they are first asked for. Thread-safe.
class Program {
 public:
  virtual ~Program() = default;
  virtual std::vector<std::string> kernel_names() const = 0;
  // What is to be known of a kernel before it is compiled. nullptr: there is none of this name, or it cannot be
  // compiled and `log` names line and instruction. Lives as long as this.
  virtual const KernelCode* kernel(const std::string& name, std::string* log) = 0;
  virtual const std::vector<Variable>& variables() const = 0;
  // What one Loaded takes beside the variables: code and constants, counted as the module's text.
  virtual uint64_t code_bytes() const = 0;
  // The kernel's instructions with those of functions that it calls by name, as recording code counts them. nullptr:
  // there is no such kernel, or its code records nothing.
  virtual std::shared_ptr<const timing::Code> timing_code(const std::string& /*kernel*/) { return nullptr; }
  // Makes room for code in one context: variable name -> device address. May be called several times; each call
  // gives an independent set of entry points that live as long as the returned object, which this outlives.
  struct Loaded {
    virtual ~Loaded() = default;
    // Compiles the kernel unless that is done, which may take seconds. nullptr: it cannot be, and `log` says why.
    virtual KernelEntry entry(const std::string& kernel, std::string* log) = 0;
    // What programs have as the address of a function or a kernel, 0 if there is none of this name.
    virtual uint64_t function_address(const std::string& name) const = 0;
    // The kernel with this address, empty if none has it. Any value may come.
    virtual std::string kernel_at(uint64_t /*address*/) const { return {}; }
    // Pieces of long kernels, and functions that are called through pointers, are compiled while kernels run, whose
    // threads have not the stack for that: `start` has `make` run in another thread, and returns a call that waits for
    // what it returns; nullptr: it failed, and `log` said why. `at_once`: so many run beside each other. To be set
    // before any kernel runs.
    using Make = std::function<void*(std::string* log)>;
    using Wait = std::function<void*()>;
    using StartElsewhere = std::function<Wait(const std::string& name, const std::string& part, Make make)>;
    virtual void compile_by(StartElsewhere /*start*/, uint32_t /*at_once*/) {}
  };
  virtual std::unique_ptr<Loaded> load(const std::map<std::string, uint64_t>& addresses, std::string* error) = 0;
};

struct CompileOptions {
  uint64_t window_base = 0;
  std::string cache_directory = {};      // object code by content hash; empty: none
  CodeKeeper* keeper = nullptr;          // who writes there; null: the compiler itself
  std::function<void()> generates = {};  // called where code is not there and is made
  // Functions with more text are compiled one by one, when kernels call them, and not with each kernel that could.
  uint64_t functions_at_once = 256 << 10;
  // Functions with more instructions, and without shared variables, are compiled apart, when they are first called.
  size_t function_at_once = 800;
  // Kernels with more instructions are compiled in pieces of about so many, when a warp first comes there. So are
  // shorter ones above `parting_at_once` that have more blocks in a region, between a branch and where its lanes meet.
  size_t kernel_at_once = 2500, parting_at_once = 1500, region_at_once = 100, piece = 200;
  // Kernels with more text are looked at when they are asked for, and not all of them when the module is loaded.
  uint64_t checked_at_once = 4 << 20;
  bool record = false;   // code records what its warps do (WarpState::recording), for the timing model
  std::string cpu = {};  // LLVM's name of the processor; empty: this machine's (tests name others)
  // For tests: few as for very large functions, none as where compiling takes too long.
  enum class Passes : uint8_t { kBySize, kFew, kNone } passes = Passes::kBySize;
};

// `ptx` is one module's text. On failure nullptr, and `log` names the line. What its kernels do is looked at later.
std::unique_ptr<Program> compile(std::string_view ptx, const CompileOptions& options, std::string* log);

}  // namespace bandsaw::soft
