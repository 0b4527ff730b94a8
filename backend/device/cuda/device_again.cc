// What a process that was made anew is given again (gives_again.h), beside addresses of the heap's, and what of this
// process another one could not have.
#include <algorithm>

#include "backend/device/cuda/code_variables.h"
#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

bool CudaDevice::has_memory(uint64_t address) {
  if (heap_->begins_at(address)) return true;
  std::lock_guard lock(globals_mutex_);
  const auto found = globals_.find(address);
  return found != globals_.end() && !found->second.expired();
}

bool CudaDevice::reaches(uint64_t address, uint64_t bytes) {
  return heap_->covers(address, bytes) || reservations_->covers(address, bytes);
}

// What the driver chooses the place of, where that depends on more than the calls that are made again, or what nobody
// can read.
std::string CudaDevice::not_given() {
  if (heap_->has_chunks()) return "memory that may lie in the host's ([swap])";
  if (graph_conditions_) return "conditional nodes of graphs on a GPU";
  if (graph_records_) return "a graph on a GPU that records an event";
  if (graphs_allocate_) return "memory of graphs on a GPU";
  {
    std::lock_guard lock(managed_mutex_);
    if (!managed_.empty()) return "managed memory on a GPU";
  }
  {
    std::lock_guard lock(pool_mutex_);
    if (!pool_memory_.empty()) return "memory of a pool on a GPU";
  }
  std::lock_guard lock(only_here_mutex_);
  std::erase_if(only_here_, [](const auto& one) { return one.first.expired(); });
  return only_here_.empty() ? "" : only_here_.front().second;
}

// No other process could be given it.
void CudaDevice::is_only_here(const std::shared_ptr<Object>& object, const char* words) {
  if (!config_.replaceable) return;
  std::lock_guard lock(only_here_mutex_);
  if (only_here_.size() >= only_here_most_) {
    std::erase_if(only_here_, [](const auto& one) { return one.first.expired(); });
    only_here_most_ = 2 * only_here_.size() + 64;
  }
  only_here_.emplace_back(object, words);
}

std::string CudaDevice::reserved(std::vector<ReservedAgain>* all) {
  *all = reservations_->all();
  const bool elsewhere =
      std::any_of(all->begin(), all->end(), [this](const auto& one) { return !heap_->reserves(one.address); });
  return elsewhere ? "addresses of another virtual GPU" : "";
}

uint64_t CudaDevice::memory_key(const MemoryRef& memory, uint64_t* bytes) {
  const auto& created = static_cast<const CudaMemory&>(*memory);
  *bytes = created.bytes;
  if (created.borrowed || created.revoked) return 0;
  return created.key;
}

// By numbers that no other process has of its own.
void CudaDevice::give_key(const CudaMemoryRef& memory) {
  std::lock_guard lock(created_mutex_);
  std::erase_if(created_, [](const auto& one) { return one.expired(); });
  memory->key = std::exchange(next_key_, next_key_ + Along::kKeyStep);
  created_.push_back(memory);
}

CUresult CudaDevice::memory_make(uint64_t key, uint64_t bytes, MemoryRef* memory) {
  constexpr uint64_t kKeyMost = uint64_t{1} << 40;
  if (key % Along::kKeyStep != 0 || key <= Along::kVariables || key > kKeyMost) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(created_mutex_);
    const auto has_key = [key](const auto& one) {
      const auto there = one.lock();
      return there && there->key == key;
    };
    if (std::any_of(created_.begin(), created_.end(), has_key)) return CUDA_ERROR_INVALID_VALUE;
    next_key_ = key;  // and so it gets this one
  }
  vgpu_memory_props made{};
  const CUresult result = memory_create(vgpu_memory_props{}, bytes, memory, &made);
  std::lock_guard lock(created_mutex_);
  for (const auto& one : created_) {
    if (const auto there = one.lock()) next_key_ = std::max(next_key_, there->key + Along::kKeyStep);
  }
  return result;
}

CUresult CudaDevice::find_variable(const Object& code, const std::string& name, uint64_t* address, uint64_t* bytes) {
  CUdeviceptr at = 0;
  size_t size = 0;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (const auto* const library = dynamic_cast<const CudaLibrary*>(&code)) {
    if (library->handle.load()) result = driver_->cuLibraryGetGlobal(&at, &size, library->handle, name.c_str());
  } else if (const auto* const module = dynamic_cast<const CudaModule*>(&code)) {
    result = driver_->cuModuleGetGlobal(&at, &size, module->handle, name.c_str());
  }
  *address = at;
  *bytes = size;
  return result;
}

// Code that nothing was asked of is in no context: its variables have their first values, and nobody knows their
// addresses.
std::string CudaDevice::list_code(CodeAgain* of) {
  const auto* const library = dynamic_cast<const CudaLibrary*>(of->code.get());
  const auto* const module = dynamic_cast<const CudaModule*>(of->code.get());
  if (library && library->managed) return "managed variables on a GPU";
  CodeVariables listed;
  int major = 0, minor = 0;
  driver_->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_);
  driver_->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_);
  if (!of->image || !list_variables(*of->image, static_cast<uint32_t>(major * 10 + minor), &listed)) {
    return "code whose variables cannot be listed";
  }
  if (listed.keeps_functions) return "code on a GPU that has addresses of functions";
  if (listed.allocates) return "kernels on a GPU that may allocate memory (malloc)";
  const bool used = (library && library->used) || (module && module->used);
  if (!used) return {};
  for (const std::string& name : listed.names) {
    VariableAgain variable{.name = name};
    const CUresult result = find_variable(*of->code, name, &variable.address, &variable.bytes);
    if (result == CUDA_ERROR_NOT_FOUND && !listed.machine_code) continue;  // nothing used it
    if (result != CUDA_SUCCESS) {
      log::warn("variable {} of code: {}", name, driver_->describe(result));
      return fmt::format("a variable that the driver does not find, {}", name.substr(0, 128));
    }
    if (of->variables.size() < kVariablesLogged) {
      log::info("variable {}: {} bytes at {:#x}", name.substr(0, 128), variable.bytes, variable.address);
    }
    if (variable.bytes != 0) of->variables.push_back(std::move(variable));
  }
  return {};
}

std::string CudaDevice::take_along(std::span<CodeAgain> all) {
  if (enter() != CUDA_SUCCESS) return "a context that has failed";
  along_ = std::make_unique<Along>(driver_, heap_.get(), device_);
  for (CodeAgain& code : all) {
    if (std::string words = list_code(&code); !words.empty()) {
      along_ = nullptr;
      return words;
    }
  }
  fill_along(all);
  CUresult result = along_->make_pages();
  if (result == CUDA_SUCCESS) result = along_->copy(own_context()->handle, false);
  if (result == CUDA_SUCCESS) return {};
  along_ = nullptr;
  return "memory that could not be read from the GPU";
}

void CudaDevice::fill_along(std::span<const CodeAgain> all) {
  size_t count = 0;
  for (const CodeAgain& code : all) {
    for (const VariableAgain& one : code.variables) along_->add_variable(one.address, one.bytes);
    count += code.variables.size();
  }
  std::lock_guard lock(created_mutex_);
  for (const auto& weak : created_) {
    if (const CudaMemoryRef memory = weak.lock()) along_->add_memory(memory->key, memory);
  }
  log::info("{} variables of {} pieces of code go along, and {} pieces of created memory", count, all.size(),
            created_.size());
}

// All that differs is logged: a restore that is refused is to say as much as possible.
Status CudaDevice::expect_along(std::span<const CodeAgain> all) {
  if (const CUresult result = enter()) return Status::error(ENODEV, "the context: {}", driver_->describe(result));
  size_t wrong = misplaced_;
  std::string first = wrong != 0 ? "the runner's log names it" : "";
  for (size_t i = 0; i < all.size(); ++i) {
    for (const VariableAgain& one : all[i].variables) {
      uint64_t address = 0, bytes = 0;
      const CUresult result = find_variable(*all[i].code, one.name, &address, &bytes);
      if (result == CUDA_SUCCESS && address == one.address && bytes == one.bytes) continue;
      const std::string what =
          fmt::format("variable {} of code {}: {} bytes at {:#x}, before {} bytes at {:#x}: {}",
                      one.name.substr(0, 128), i, bytes, address, one.bytes, one.address, driver_->describe(result));
      if (wrong++ < kVariablesLogged) log::error("{}", what);
      if (first.empty()) first = what;
    }
  }
  if (wrong != 0) return Status::error(EADDRINUSE, "{} variables lie elsewhere now, the first: {}", wrong, first);
  along_ = std::make_unique<Along>(driver_, heap_.get(), device_);
  fill_along(all);
  if (const CUresult result = along_->make_pages()) return Status::error(ENOMEM, "{}", driver_->describe(result));
  return {};
}

// A call that is made again must find it where it was. It is noted once: only the first may have loaded the code.
void CudaDevice::found_variable(const std::shared_ptr<Object>& code, const std::string& name, uint64_t address) {
  Given* const given = Given::current();
  if (!config_.replaceable || !given) return;
  // It goes on, so that expect_along() can say of all of them where they lie.
  if (given->again() && given->next() != address) {
    log::error("variable {} lies at {:#x}, before at {:#x}", name.substr(0, 128), address, given->next());
    ++misplaced_;
  }
  std::lock_guard lock(globals_mutex_);
  std::weak_ptr<Object>& known = globals_[address];
  if (!given->again() && known.lock() == code) return;
  known = code;
  given->give(address);
}

std::optional<int64_t> CudaDevice::event_age(const EventRef& event) {
  CudaEvent& of = as(event);
  CUevent now = nullptr;
  float milliseconds = 0;
  if (enter(of.context) != CUDA_SUCCESS || driver_->cuEventCreate(&now, 0) != CUDA_SUCCESS) return {};
  CUresult result = driver_->cuEventRecordWithFlags(now, CU_STREAM_LEGACY, 0);
  if (result == CUDA_SUCCESS) result = driver_->cuEventSynchronize(now);
  if (result == CUDA_SUCCESS) result = driver_->cuEventElapsedTime(&milliseconds, of.handle, now);
  driver_->cuEventDestroy(now);
  if (result != CUDA_SUCCESS) return {};  // it was not recorded, or keeps no time
  return static_cast<int64_t>(double{milliseconds} * 1e6) + of.age_ns;
}

// The driver has no way to date one back: what it says of its time is corrected (event_elapsed).
CUresult CudaDevice::event_set_age(const EventRef& event, int64_t nanoseconds) {
  CudaEvent& of = as(event);
  if (nanoseconds < 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = enter(of.context)) return result;
  const CUresult result = check(driver_->cuEventRecordWithFlags(of.handle, CU_STREAM_LEGACY, 0));
  if (result == CUDA_SUCCESS) of.age_ns = nanoseconds;
  return result;
}

CUresult CudaDevice::make_shared_by_graphs(const SharedByGraphs& shared) {
  return shared.memory.empty() && shared.conditions.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace bandsaw::cuda
