// cuLink*. PTX alone is bound by our own linker, and compiled when it is loaded; machine code, and options that change
// what is made, take the driver's. In a runner, the driver's linker of 580.159.04 ends with a fault in its compiler
// (libnvidia-ptxjitcompiler) when it is created, although it works in programs that do nothing else.
#include <utility>

#include "backend/device/cuda/cuda_device.h"
#ifdef BANDSAW_HAVE_IMAGE
#include "backend/device/image/linker.h"
#endif

namespace bandsaw::cuda {
namespace {

#ifdef BANDSAW_HAVE_IMAGE
using PtxLinker = image::PtxLinker;
constexpr bool kHasPtxLinker = true;
#else
struct PtxLinker {
  CUresult add(CUjitInputType, std::span<const std::byte>, const std::string&) { return CUDA_ERROR_NOT_SUPPORTED; }
  CUresult complete(std::vector<std::byte>*) { return CUDA_ERROR_NOT_SUPPORTED; }
  std::string log() const { return {}; }
};
constexpr bool kHasPtxLinker = false;
#endif

// The driver writes into the logs until the link state is destroyed. Used by one thread at a time.
class CudaLinker : public Linker {
 public:
  CudaLinker(std::shared_ptr<const Driver> driver, CudaContextRef context, std::span<const LinkOption> asked)
      : driver_(std::move(driver)), context_(std::move(context)), info_(kLogBytes, '\0'), error_(kLogBytes, '\0') {
    option(CU_JIT_INFO_LOG_BUFFER, info_.data());
    option(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(kLogBytes));
    option(CU_JIT_ERROR_LOG_BUFFER, error_.data());
    option(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(kLogBytes));
    for (const LinkOption& one : asked) option(one.option, reinterpret_cast<void*>(uintptr_t{one.value}));
    ours_ = kHasPtxLinker && asked.empty();
  }
  ~CudaLinker() override {
    if (state_ && context_->alive) driver_->cuLinkDestroy(state_);
  }

  // The context is current, here and below.
  CUresult create() { return ours_ ? CUDA_SUCCESS : create_drivers(); }
  CUresult add(CUjitInputType type, std::span<const std::byte> data, const std::string& name) {
    if (ours_ && type == CU_JIT_INPUT_PTX) {
      inputs_.push_back({{data.begin(), data.end()}, name});
      return linker_.add(type, data, name);
    }
    if (const CUresult result = leave_ours()) return result;
    return add_to_drivers(type, data, name);
  }
  CUresult complete(std::vector<std::byte>* linked) {
    if (ours_) return linker_.complete(linked);
    void* made = nullptr;
    size_t bytes = 0;
    if (const CUresult result = driver_->cuLinkComplete(state_, &made, &bytes)) return result;
    const auto* const first = static_cast<const std::byte*>(made);
    linked->assign(first, first + bytes);
    return CUDA_SUCCESS;
  }
  // Ended by NUL, whatever the driver has written.
  std::string log(bool failed) const {
    if (ours_) return linker_.log();
    const std::string& text = failed ? error_ : info_;
    return text.substr(0, std::min(text.find('\0'), kLogBytes - 1));
  }

 private:
  static constexpr size_t kLogBytes = 12 * 1024;
  struct Input {
    std::vector<std::byte> ptx;
    std::string name;
  };

  void option(CUjit_option name, void* value) {
    options_.push_back(name);
    values_.push_back(value);
  }
  CUresult create_drivers() {
    return driver_->cuLinkCreate(static_cast<unsigned>(options_.size()), options_.data(), values_.data(), &state_);
  }
  CUresult add_to_drivers(CUjitInputType type, std::span<const std::byte> data, const std::string& name) {
    std::vector<std::byte> copy(data.begin(), data.end());
    copy.push_back(std::byte{0});  // PTX ends there
    const size_t bytes = data.size() + (type == CU_JIT_INPUT_PTX ? 1 : 0);
    return driver_->cuLinkAddData(state_, type, copy.data(), bytes, name.c_str(), 0, nullptr, nullptr);
  }
  // What our linker has goes to the driver's.
  CUresult leave_ours() {
    if (!ours_) return CUDA_SUCCESS;
    ours_ = false;
    if (const CUresult result = create_drivers()) return result;
    for (const Input& input : std::exchange(inputs_, {})) {
      if (const CUresult result = add_to_drivers(CU_JIT_INPUT_PTX, input.ptx, input.name)) return result;
    }
    return CUDA_SUCCESS;
  }

  const std::shared_ptr<const Driver> driver_;
  const CudaContextRef context_;
  std::string info_, error_;
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  bool ours_ = true;
  PtxLinker linker_;  // and what it has, while it is ours
  std::vector<Input> inputs_;
  CUlinkState state_ = nullptr;
};

CudaLinker& linker_of(const LinkerRef& linker) { return static_cast<CudaLinker&>(*linker); }

}  // namespace

CUresult CudaDevice::link_create(const ContextRef& context, std::span<const LinkOption> options, LinkerRef* linker) {
  if (const CUresult result = enter(as(context))) return result;
  auto made = std::make_shared<CudaLinker>(driver_, as(context), options);
  if (const CUresult result = made->create()) return check(result);
  *linker = std::move(made);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::link_add(const LinkerRef& linker, CUjitInputType type, std::span<const std::byte> data,
                              const std::string& name, std::string* log) {
  if (const CUresult result = enter()) return result;
  const CUresult result = linker_of(linker).add(type, data, name);
  *log = linker_of(linker).log(result != CUDA_SUCCESS);
  return check(result);
}

CUresult CudaDevice::link_complete(const LinkerRef& linker, std::vector<std::byte>* image, std::string* log) {
  if (const CUresult result = enter()) return result;
  const CUresult result = linker_of(linker).complete(image);
  *log = linker_of(linker).log(result != CUDA_SUCCESS);
  return check(result);
}

}  // namespace bandsaw::cuda
