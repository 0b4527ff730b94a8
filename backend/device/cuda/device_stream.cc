// Streams, events, host functions and stream values.
#include <semaphore>

#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

// On a thread of the driver's: the stream goes on when the guest has run the function.
void run_in_guest(const HostFunction& function, CUresult status) {
  std::binary_semaphore returned{0};
  function.host->run_callback(function.callback, status, [&](CUresult) { returned.release(); });
  returned.acquire();
}

void CUDA_CB run_once(void* data) {
  const std::unique_ptr<HostFunction> function(static_cast<HostFunction*>(data));
  run_in_guest(*function, CUDA_SUCCESS);
}

void CUDA_CB run_stream_callback(CUstream, CUresult status, void* data) {
  const std::unique_ptr<HostFunction> function(static_cast<HostFunction*>(data));
  run_in_guest(*function, status);
}

}  // namespace

void CUDA_CB run_host_function(void* data) { run_in_guest(*static_cast<const HostFunction*>(data), CUDA_SUCCESS); }

CUresult CudaDevice::stream_create(const ContextRef& context, uint32_t flags, int32_t priority, StreamRef* stream) {
  if (const CUresult result = enter(as(context))) return result;
  // Of a green context, or with a priority, there are none in stock.
  const auto stock = as(context)->stock && StreamStock::has(flags, priority) ? as(context)->stock : nullptr;
  CUstream made = stock ? stock->take(flags) : nullptr;
  const CUresult result = made ? CUDA_SUCCESS : check(driver_->cuStreamCreateWithPriority(&made, flags, priority));
  if (result != CUDA_SUCCESS) return result;
  const bool apart = (flags & CU_STREAM_NON_BLOCKING) != 0;
  auto order = as(context)->order && !apart ? as(context)->order->add(made) : nullptr;
  auto created = std::make_shared<CudaStream>(driver_, made, as(context), true, apart, std::move(order));
  created->stock = stock;
  created->stock_flags = flags;
  streams_->add(created);
  *stream = std::move(created);
  return CUDA_SUCCESS;
}

// In a green context over the primary one, kept for the next stream on the same SMs.
CUresult CudaDevice::stream_create_part(const ContextRef& context, uint32_t flags, int32_t priority, uint32_t first,
                                        uint32_t count, StreamRef* stream) {
  if (partition_ || as(context) != primary_) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = enter(as(context))) return result;
  CudaContextRef part;
  if (const CUresult result = part_of(first, count, &part)) return check(result);
  if (const CUresult result = enter(part)) return result;
  CUstream made = nullptr;
  const CUresult result =
      check(driver_->cuGreenCtxStreamCreate(&made, part->green, flags | CU_STREAM_NON_BLOCKING, priority));
  if (result != CUDA_SUCCESS) return result;
  auto created = std::make_shared<CudaStream>(driver_, made, std::move(part), true, true);
  streams_->add(created);
  *stream = std::move(created);
  return CUDA_SUCCESS;
}

// What is left behind all whole groups is of the last part, or one by itself.
CUresult CudaDevice::part_of(uint32_t first, uint32_t count, CudaContextRef* part) {
  constexpr uint32_t kGroup = 8;  // SMs that the driver gives out at a time, from compute capability 9.0 on
  int sms = 0;
  driver_->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  const bool to_the_end = uint64_t{first} + count == static_cast<uint32_t>(sms);
  if (first % kGroup || count == 0 || (count % kGroup && !to_the_end)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  std::lock_guard lock(parts_mutex_);
  Part& kept = parts_[{first, count}];
  if (!kept.context || !kept.context->alive) {
    DeviceConfig config;
    config.sm_step = kGroup;
    config.sm_first = first / kGroup;
    config.sm_groups = to_the_end ? 0 : count / kGroup;
    auto made = Partition::make(driver_, device_, config);
    if (!made.ok()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    Charge charge(host_);
    if (const CUresult result = take_share(kGreenContextBytes, &charge)) return result;
    if (const CUresult result = made.value()->make_context(primary_, false, &kept.context)) return result;
    kept.context->charge = std::move(charge);
    kept.partition = std::move(made.value());
  }
  *part = kept.context;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::keep_order(const CudaStream& stream) {
  if (stream.handle == CU_STREAM_LEGACY) return check(stream.context->order->before_legacy(streams_->some_capture()));
  CUresult error = CUDA_SUCCESS;
  if (!stream.blocking || is_capturing(stream.handle, &error)) return check(error);
  return check(error == CUDA_SUCCESS ? stream.context->order->before(*stream.blocking) : error);
}

// The program knows nothing of it and its work is joined to the stream's, so that the legacy stream stands for as much
// as before.
CUresult CudaDevice::stream_beside(const StreamRef& stream, StreamRef* made) {
  if (const CUresult result = enter(stream)) return result;
  int priority = 0;
  if (const CUresult result = check(driver_->cuStreamGetPriority(as(stream).handle, &priority))) return result;
  CUstream beside = nullptr;
  const CUresult result = check(driver_->cuStreamCreateWithPriority(&beside, CU_STREAM_NON_BLOCKING, priority));
  if (result == CUDA_SUCCESS) {
    *made = std::make_shared<CudaStream>(driver_, beside, as(stream).context, true, as(stream).apart);
  }
  return result;
}

StreamRef CudaDevice::stream_legacy(const ContextRef& context) {
  return std::make_shared<CudaStream>(driver_, CU_STREAM_LEGACY, as(context), false);
}

CUresult CudaDevice::stream_destroy(const StreamRef& stream) {
  const auto gone = std::static_pointer_cast<CudaStream>(stream);
  if (const CUresult result = enter(gone->context)) return result;
  time_slices_->leave(gone);
  keep_alive_->forget(*gone);
  return check(streams_->leave(gone));
}

CUresult CudaDevice::stream_wait_event(const StreamRef& stream, const EventRef& event, uint32_t flags) {
  if (const CUresult result = enter(stream)) return result;
  std::unique_lock<std::mutex> lock;
  if (streams_->some_capture()) {  // it may join the capture
    lock = streams_->lock_captures();
    time_slices_->leave(std::static_pointer_cast<CudaStream>(stream));
  } else {
    work_ends(stream);
  }
  return check(driver_->cuStreamWaitEvent(as(stream).handle, as(event).handle, flags));
}

CUresult CudaDevice::callback(const StreamRef& stream, const HostCallback& callback) {
  if (const CUresult result = enter(stream)) return result;
  const CUstream handle = as(stream).handle;
  auto function = std::make_unique<HostFunction>(HostFunction{host_, callback});
  CUresult error = CUDA_SUCCESS;
  const bool capturing = is_capturing(handle, &error);
  if (error != CUDA_SUCCESS) return check(error);
  work_ends(stream);
  if (callback.kind == VGPU_CALLBACK_STREAM) {
    const CUresult result = check(driver_->cuStreamAddCallback(handle, run_stream_callback, function.get(), 0));
    if (result == CUDA_SUCCESS) function.release();
    return result;
  }
  if (!capturing) {
    const CUresult result = check(driver_->cuLaunchHostFunc(handle, run_once, function.get()));
    if (result == CUDA_SUCCESS) function.release();
    return result;
  }
  // A graph may run it many times: it lives as long as the graph that the capture makes.
  std::shared_ptr<HostFunction> kept(std::move(function));
  const CUresult result = check(driver_->cuLaunchHostFunc(handle, run_host_function, kept.get()));
  if (result == CUDA_SUCCESS) keep_for_capture(handle, std::move(kept));
  return result;
}

CUresult CudaDevice::write_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                                 uint32_t flags) {
  if (const CUresult result = enter(stream)) return result;
  const CUstream handle = as(stream).handle;
  return check(bytes == 8 ? driver_->cuStreamWriteValue64(handle, address, value, flags)
                          : driver_->cuStreamWriteValue32(handle, address, static_cast<uint32_t>(value), flags));
}

CUresult CudaDevice::wait_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                                uint32_t flags) {
  if (const CUresult result = enter(stream)) return result;
  const CUstream handle = as(stream).handle;
  work_ends(stream);
  return check(bytes == 8 ? driver_->cuStreamWaitValue64(handle, address, value, flags)
                          : driver_->cuStreamWaitValue32(handle, address, static_cast<uint32_t>(value), flags));
}

CUresult CudaDevice::event_create(const ContextRef& context, uint32_t flags, EventRef* event) {
  if (const CUresult result = enter(as(context))) return result;
  CUevent made = nullptr;
  // How the guest waits is the guest's affair; here it would only make the waiter sleep.
  const CUresult result = check(driver_->cuEventCreate(&made, flags & ~unsigned{CU_EVENT_BLOCKING_SYNC}));
  if (result == CUDA_SUCCESS) *event = std::make_shared<CudaEvent>(driver_, made, as(context));
  return result;
}

// Not before nobody waits for it.
CUresult CudaDevice::event_destroy(const EventRef& event) { return enter(as(event).context); }

CUresult CudaDevice::event_record(const EventRef& event, const StreamRef& stream, uint32_t flags) {
  if (const CUresult result = enter(stream)) return result;
  if (flags & CU_EVENT_RECORD_EXTERNAL) graph_records_ = true;
  const CudaEvent::Place place = as(event).recording(std::static_pointer_cast<CudaStream>(stream));
  const CUresult result = driver_->cuEventRecordWithFlags(as(event).handle, as(stream).handle, flags);
  if (result == CUDA_SUCCESS && !streams_->some_capture()) as(event).recorded(place);
  if (result != CUDA_SUCCESS || as(event).age_ns == 0) return check(result);
  CUresult error = CUDA_SUCCESS;
  if (!is_capturing(as(stream).handle, &error)) as(event).age_ns = 0;
  return result;
}

CUresult CudaDevice::event_elapsed(const EventRef& start, const EventRef& end, float* milliseconds) {
  if (const CUresult result = enter(as(start).context)) return result;
  const CUresult result = check(driver_->cuEventElapsedTime(milliseconds, as(start).handle, as(end).handle));
  const int64_t more = as(start).age_ns - as(end).age_ns;
  if (result == CUDA_SUCCESS && more != 0) *milliseconds += static_cast<float>(static_cast<double>(more) * 1e-6);
  return result;
}

}  // namespace bandsaw::cuda
