// cuLink*: the driver's own linker.
#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {
namespace {

// The driver writes into the logs until the link state is destroyed. Used by one thread at a time.
class CudaLinker : public Linker {
 public:
  CudaLinker(std::shared_ptr<const Driver> driver, CudaContextRef context)
      : driver_(std::move(driver)), context_(std::move(context)), info_(kLogBytes, '\0'), error_(kLogBytes, '\0') {}
  ~CudaLinker() override {
    if (state && context_->alive) driver_->cuLinkDestroy(state);
  }

  CUresult create(std::span<const LinkOption> asked) {
    option(CU_JIT_INFO_LOG_BUFFER, info_.data());
    option(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(kLogBytes));
    option(CU_JIT_ERROR_LOG_BUFFER, error_.data());
    option(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, reinterpret_cast<void*>(kLogBytes));
    for (const LinkOption& one : asked) option(one.option, reinterpret_cast<void*>(uintptr_t{one.value}));
    return driver_->cuLinkCreate(static_cast<unsigned>(options_.size()), options_.data(), values_.data(), &state);
  }
  // Ended by NUL, whatever the driver has written.
  std::string log(bool failed) const {
    const std::string& text = failed ? error_ : info_;
    return text.substr(0, std::min(text.find('\0'), kLogBytes - 1));
  }

  CUlinkState state = nullptr;

 private:
  static constexpr size_t kLogBytes = 12 * 1024;
  void option(CUjit_option name, void* value) {
    options_.push_back(name);
    values_.push_back(value);
  }

  const std::shared_ptr<const Driver> driver_;
  const CudaContextRef context_;
  std::string info_, error_;
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
};

CudaLinker& linker_of(const LinkerRef& linker) { return static_cast<CudaLinker&>(*linker); }

}  // namespace

CUresult CudaDevice::link_create(const ContextRef& context, std::span<const LinkOption> options, LinkerRef* linker) {
  if (const CUresult result = enter(as(context))) return result;
  auto made = std::make_shared<CudaLinker>(driver_, as(context));
  if (const CUresult result = made->create(options)) return check(result);
  *linker = std::move(made);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::link_add(const LinkerRef& linker, CUjitInputType type, std::span<const std::byte> data,
                              const std::string& name, std::string* log) {
  if (const CUresult result = enter()) return result;
  std::vector<std::byte> copy(data.begin(), data.end());
  copy.push_back(std::byte{0});  // PTX ends there
  const size_t bytes = data.size() + (type == CU_JIT_INPUT_PTX ? 1 : 0);
  const CUresult result =
      driver_->cuLinkAddData(linker_of(linker).state, type, copy.data(), bytes, name.c_str(), 0, nullptr, nullptr);
  *log = linker_of(linker).log(result != CUDA_SUCCESS);
  return check(result);
}

CUresult CudaDevice::link_complete(const LinkerRef& linker, std::vector<std::byte>* image, std::string* log) {
  if (const CUresult result = enter()) return result;
  void* data = nullptr;
  size_t bytes = 0;
  const CUresult result = driver_->cuLinkComplete(linker_of(linker).state, &data, &bytes);
  *log = linker_of(linker).log(result != CUDA_SUCCESS);
  if (result != CUDA_SUCCESS) return check(result);
  const auto* const first = static_cast<const std::byte*>(data);
  image->assign(first, first + bytes);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::cuda
