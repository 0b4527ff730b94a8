// Code images: read once for the device, loaded with variables of its own into each context that uses it. Kernels are
// compiled when they are first launched.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device/soft/compile.h"
#include "backend/device/soft/compiler.h"
#include "backend/device/soft/context.h"
#include "memory/share.h"

namespace bandsaw::soft {

// What programs may change about a kernel.
struct KernelSettings {
  std::atomic<int32_t> max_dynamic_shared{48 * 1024};
  std::atomic<int32_t> carveout{-1};
  std::atomic<int32_t> cluster_non_portable{0}, cluster_policy{0};
  std::atomic<int32_t> cluster[3]{};
};

// One image: its PTX, and what all contexts share. Immutable but for settings and managed addresses.
class Image {
 public:
  // `sm`: 75 for code written for compute_75.
  Image(std::unique_ptr<Program> program, uint32_t sm);

  uint32_t sm() const { return sm_; }
  Program& program() { return *program_; }
  // CUDA_ERROR_NOT_FOUND, or CUDA_ERROR_INVALID_PTX for a kernel that cannot be compiled; the log says why.
  CUresult kernel(const std::string& name, const KernelCode** code);
  KernelSettings& settings(const std::string& name);  // of a kernel that was found
  std::vector<std::string> kernel_names() const { return program_->kernel_names(); }

  std::mutex managed_mutex;
  std::map<std::string, uint64_t> managed;                          // where library_bind_managed put them
  std::map<std::string, std::shared_ptr<std::byte>> managed_pages;  // the program's, until it is in managed_ready
  Charge<DeviceHost> managed_share;                                 // what they take, once for all contexts
  std::set<std::string> managed_ready;                              // addresses in initial values written

 private:
  std::unique_ptr<Program> program_;
  const uint32_t sm_;
  std::mutex settings_mutex_;
  std::map<std::string, KernelSettings> settings_;  // guarded by settings_mutex_
};

// An image in one context.
// Whether the piece lies inside of the variable, as it must.
bool fits(const Variable::Piece& piece, const Variable& variable);

class LoadedImage {
 public:
  // Allocates and initialises the variables, loads the code.
  static CUresult make(const std::shared_ptr<Image>& image, const std::shared_ptr<Memory>& memory,
                       std::shared_ptr<LoadedImage>* loaded, std::string* log);
  ~LoadedImage();

  // The program has unloaded it: launches that run keep it, copies no longer find its variables.
  void retire() { memory_->retire_owner(this); }
  // Waits for the kernel's compilation, which `compiler` is asked for if nobody has; nullptr: it failed, see the log.
  KernelEntry entry(const std::string& kernel, Compiler& compiler);
  // Whether entry() would not wait. Asks for the compilation if nobody has.
  bool is_compiled(const std::string& kernel, Compiler& compiler);
  bool variable(const std::string& name, uint64_t* address, uint64_t* bytes) const;
  // The one that holds this address.
  bool variable_around(uint64_t address, uint64_t* base, uint64_t* bytes) const;
  const std::shared_ptr<Image>& image() const { return image_; }
  // The kernel whose address programs have as this; empty: any other value.
  std::string kernel_at(uint64_t address) const { return code_->kernel_at(address); }

 private:
  LoadedImage() = default;
  CUresult place(Image& image, std::string* log);
  CUresult initialise(Image& image, std::string* log);
  CompileJobRef job(const std::string& kernel, Compiler& compiler);
  std::shared_ptr<Image> image_;
  std::shared_ptr<Memory> memory_;
  std::map<std::string, uint64_t> addresses_;
  std::shared_ptr<Program::Loaded> code_;  // shared with jobs; holds the image too
  Charge<DeviceHost> code_share_;
  std::mutex jobs_mutex_;
  std::map<std::string, CompileJobRef> jobs_;  // guarded by jobs_mutex_; what was asked for
  bool compiler_known_ = false;                // guarded by jobs_mutex_: to code_
};

class SoftLibrary : public Library {
 public:
  explicit SoftLibrary(std::shared_ptr<Image> image_) : image(std::move(image_)) {}
  const std::shared_ptr<Image> image;
};

class SoftModule : public Module {
 public:
  std::shared_ptr<Image> image;
  std::shared_ptr<LoadedImage> loaded;
  std::weak_ptr<SoftContext> context;
};

class SoftKernel : public Kernel {
 public:
  std::shared_ptr<Image> image;
  const KernelCode* code = nullptr;
};

class SoftFunction : public Function {
 public:
  std::shared_ptr<Image> image;
  const KernelCode* code = nullptr;
  std::shared_ptr<LoadedImage> loaded;
  std::weak_ptr<SoftContext> context;
};

// The kernel that a Code names; image and code are null if it names none.
struct CodeView {
  std::shared_ptr<Image> image;
  const KernelCode* code = nullptr;
  std::shared_ptr<LoadedImage> loaded;  // set for functions
};
CodeView view(const Code& code);

// Picks the image's PTX and reads what is at module level.
CUresult read_image(std::span<const std::byte> bytes, const CompileOptions& options, std::shared_ptr<Image>* image,
                    std::string* log);
// The image loaded in `context`, at its first use.
CUresult load_image(const std::shared_ptr<Image>& image, SoftContext& context, const std::shared_ptr<Memory>& memory,
                    std::shared_ptr<LoadedImage>* loaded, std::string* log);

}  // namespace bandsaw::soft
