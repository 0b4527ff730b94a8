#include "backend/device/cuda/objects.h"

#include <algorithm>

namespace bandsaw::cuda {
namespace {

std::atomic<uint64_t> last_id{0};
thread_local uint64_t current_id = 0;

}  // namespace

CudaContext::CudaContext(CUcontext context, bool is_primary, Green part)
    : handle(context),
      id(last_id.fetch_add(1) + 1),
      primary(is_primary),
      green(part.handle),
      base(std::move(part.base)),
      order(base ? std::make_unique<LegacyOrder>(std::move(part.driver)) : nullptr) {}

CUresult make_current(const Driver& driver, const CudaContext& context) {
  if (current_id == context.id) return CUDA_SUCCESS;
  const CUresult result = driver.cuCtxSetCurrent(context.handle);
  if (result == CUDA_SUCCESS) current_id = context.id;
  return result;
}

void forget_current() { current_id = 0; }

CUresult CudaStream::destroy() {
  if (!owned_.exchange(false) || !context->alive) return CUDA_SUCCESS;
  if (blocking && make_current(*driver_, *context) == CUDA_SUCCESS) context->order->remove(*blocking);
  if (stock && make_current(*driver_, *context) == CUDA_SUCCESS && stock->give_back(handle, stock_flags)) {
    return CUDA_SUCCESS;
  }
  return driver_->cuStreamDestroy(handle);
}

CUresult CudaEvent::destroy() {
  if (!owned_.exchange(false) || !context->owner().alive) return CUDA_SUCCESS;
  return driver_->cuEventDestroy(handle);
}

CudaEvent::Place CudaEvent::recording(const std::shared_ptr<CudaStream>& stream) {
  std::lock_guard lock(lock_);
  place_ = {.stream = {}, .work = 0, .records = place_.records + 1};
  return {.stream = stream, .work = stream->work.count(), .records = place_.records};
}

void CudaEvent::recorded(const Place& place) {
  std::lock_guard lock(lock_);
  if (place_.records == place.records) place_ = place;
}

CudaEvent::Place CudaEvent::place() const {
  std::lock_guard lock(lock_);
  return place_;
}

// Recorded again meanwhile, it may have been asked for that.
void CudaEvent::reached(const Place& place) const {
  const auto stream = place.stream.lock();
  std::lock_guard lock(lock_);
  if (stream && place_.records == place.records) stream->work.finish(place.work);
}

CudaLibrary::~CudaLibrary() { unload(); }

CUresult CudaLibrary::unload() {
  if (!loaded_.exchange(false)) return CUDA_SUCCESS;
  const CUresult result = handle.load() ? driver_->cuLibraryUnload(handle) : CUDA_SUCCESS;
  std::lock_guard lock(mutex);
  code_charge.give_back();
  managed_charge.give_back();
  return result;
}

CudaModule::~CudaModule() { unload(); }

CUresult CudaModule::unload() {
  if (!loaded_.exchange(false) || !context->owner().alive) return CUDA_SUCCESS;
  if (const CUresult result = make_current(*driver_, context->owner())) return result;
  const CUresult result = driver_->cuModuleUnload(handle);
  code_charge.give_back();
  return result;
}

CudaGraph::~CudaGraph() {
  if (owned && !is_inner_) driver_->cuGraphDestroy(handle);
}

void CudaGraph::keep(std::shared_ptr<HostFunction> function) {
  std::lock_guard lock(mutex);
  functions_.insert(std::move(function));
}

void CudaGraph::add_functions_to(Functions* all) {
  std::lock_guard lock(mutex);
  all->insert(functions_.begin(), functions_.end());
  for (const auto& graph : inner_) graph->add_functions_to(all);
}

void CudaGraph::keep_functions_of(CudaGraph& other) {
  Functions all;
  other.add_functions_to(&all);
  std::lock_guard lock(mutex);
  functions_.merge(all);
}

bool CudaGraph::has_functions() {
  std::lock_guard lock(mutex);
  return !functions_.empty() || std::ranges::any_of(inner_, [](const auto& graph) { return graph->has_functions(); });
}

std::vector<CUgraph> CudaGraph::with_inner() {
  std::vector<CUgraph> handles{handle};
  std::lock_guard lock(mutex);
  for (const auto& graph : inner_) {
    const std::vector<CUgraph> more = graph->with_inner();
    handles.insert(handles.end(), more.begin(), more.end());
  }
  return handles;
}

std::shared_ptr<CudaGraph> CudaGraph::within(const std::shared_ptr<CudaGraph>& outer,
                                             std::shared_ptr<CudaGraph> inner) {
  inner->is_inner_ = true;
  std::shared_ptr<CudaGraph> both(outer, inner.get());
  std::lock_guard lock(outer->mutex);
  outer->inner_.push_back(std::move(inner));
  return both;
}

void CudaExec::keep(const std::shared_ptr<CudaGraph>& graph) {
  if (graph->has_functions()) calls_host_ = true;
  std::lock_guard lock(mutex);
  keeps_->push_back(graph);
}

void CudaExec::keep(std::shared_ptr<HostFunction> function) {
  calls_host_ = true;
  std::lock_guard lock(mutex);
  keeps_->push_back(std::move(function));
}

CudaExec::~CudaExec() {
  if (context->owner().alive) driver_->cuGraphExecDestroy(handle);
}

}  // namespace bandsaw::cuda
