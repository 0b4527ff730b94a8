#include "backend/device/cuda/managed.h"

#include <algorithm>

#include "backend/device/cuda/load_request.h"
#include "backend/device/image/image.h"
#include "backend/device/image/units.h"
#include "memory/base/log.h"
#include "vgpu-sched/ptx/initial_value.h"
#include "vgpu-sched/ptx/managed.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::cuda {
namespace {

// A stream that waits for no other, on a thread that for now may do what captures forbid: a library is loaded at any
// time.
class Aside {
 public:
  explicit Aside(const Driver& driver) : driver_(driver) {
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    result_ = driver_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0);
  }
  ~Aside() {
    if (stream_) driver_.cuStreamDestroy(stream_);
    driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  CUresult read(void* to, CUdeviceptr from, size_t bytes) {
    CUresult result = result_;
    if (result == CUDA_SUCCESS) result = driver_.cuMemcpyDtoHAsync(to, from, bytes, stream_);
    if (result == CUDA_SUCCESS) result = driver_.cuStreamSynchronize(stream_);
    return result;
  }

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUstream stream_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

class PtxCode final : public ManagedCode {
 public:
  PtxCode(ptx::Module module, std::vector<ptx::ManagedVariable> variables)
      : module_(std::move(module)), variables_(std::move(variables)) {}

  std::vector<ManagedVariable> variables() const override {
    std::vector<ManagedVariable> list;
    for (const ptx::ManagedVariable& variable : variables_) list.push_back({variable.name, variable.bytes});
    return list;
  }

  CUresult bind(const Driver& driver, const std::string& name, uint64_t address,
                const std::shared_ptr<std::byte>& pages, std::atomic<CUlibrary>* library) override {
    std::lock_guard lock(mutex_);
    const auto variable = std::find_if(variables_.begin(), variables_.end(),
                                       [&](const ptx::ManagedVariable& v) { return v.name == name; });
    if (variable == variables_.end()) return CUDA_ERROR_NOT_FOUND;
    if (tried_ || address % variable->alignment) return CUDA_ERROR_INVALID_VALUE;
    places_[name] = address;
    pages_[name] = pages;
    if (places_.size() < variables_.size()) return CUDA_SUCCESS;
    tried_ = true;
    const CUresult result = load(driver, library);
    module_ = {};
    pages_.clear();
    return result;
  }

 private:
  CUresult load(const Driver& driver, std::atomic<CUlibrary>* library) {
    std::vector<ptx::PlacedVariable> placed;
    try {
      placed = ptx::place_managed(&module_, places_);
    } catch (const ptx::ManagedError& error) {
      log::error("managed variables: {}", error.what());
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    const std::string text = ptx::print(module_);
    LoadRequest request(std::as_bytes(std::span(text)));
    CUlibrary made = nullptr;
    CUresult result = driver.cuLibraryLoadData(&made, request.image(), request.options(), request.values(),
                                               LoadRequest::kOptions, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) {
      log::error("a library with managed variables: {}: {}", driver.describe(result), request.log());
      return result;
    }
    for (const ptx::PlacedVariable& variable : placed) {
      result = initialise(driver, made, variable);
      if (result == CUDA_SUCCESS) continue;
      log::error("managed variable {}: no initial value: {}", variable.declaration.name, driver.describe(result));
      driver.cuLibraryUnload(made);
      return result;
    }
    *library = made;
    return CUDA_SUCCESS;
  }

  CUresult initialise(const Driver& driver, CUlibrary library, const ptx::PlacedVariable& variable) {
    std::byte* const at = pages_.find(variable.declaration.name)->second.get();
    const uint64_t bytes = variable.declaration.bytes();
    if (variable.source.empty()) {
      try {
        const auto write = [at](uint64_t offset, std::span<const std::byte> value) {
          std::copy(value.begin(), value.end(), at + offset);
        };
        ptx::write_initial(variable.declaration, write, [](uint64_t, uint32_t, const ptx::SymbolAddress&) {});
      } catch (const ptx::InitialError& error) {
        log::error("{}", error.what());
        return CUDA_ERROR_INVALID_PTX;
      }
      return CUDA_SUCCESS;
    }
    CUdeviceptr source = 0;
    size_t source_bytes = 0;
    Aside aside(driver);
    const CUresult result = driver.cuLibraryGetGlobal(&source, &source_bytes, library, variable.source.c_str());
    return result == CUDA_SUCCESS ? aside.read(at, source, std::min<uint64_t>(bytes, source_bytes)) : result;
  }

  std::mutex mutex_;
  ptx::Module module_;  // guarded by mutex_; empty once it was tried
  const std::vector<ptx::ManagedVariable> variables_;
  ptx::Addresses places_;                                    // guarded by mutex_
  std::map<std::string, std::shared_ptr<std::byte>> pages_;  // guarded by mutex_; none once initial values are there
  bool tried_ = false;                                       // guarded by mutex_
};

}  // namespace

CUresult ManagedCode::find(std::span<const std::byte> bytes, uint32_t capability, std::shared_ptr<ManagedCode>* code,
                           std::string* log) {
  image::PtxChoice choice;
  std::string ignored;  // what is wrong with the image, the driver says
  if (image::find_ptx(bytes, &choice, &ignored, capability) != CUDA_SUCCESS) return CUDA_SUCCESS;
  if (std::none_of(choice.units.begin(), choice.units.end(), ptx::may_have_managed)) return CUDA_SUCCESS;
  ptx::Module module;
  if (const CUresult result = image::read_units(choice.units, &module, log)) {
    log::error("code with managed variables: {}", *log);
    return result;
  }
  try {
    std::vector<ptx::ManagedVariable> variables = ptx::managed_variables(module);
    if (!variables.empty()) *code = std::make_shared<PtxCode>(std::move(module), std::move(variables));
    return CUDA_SUCCESS;
  } catch (const ptx::ManagedError& error) {
    *log = error.what();
    log::error("code with managed variables: {}", *log);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace bandsaw::cuda
