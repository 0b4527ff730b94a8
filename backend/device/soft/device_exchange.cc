// Memory and events that other processes of the same virtual GPU use.
#include <fcntl.h>

#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

// A plain allocation gets other pages, so everything queued has to end first, and what comes later waits.
void SoftDevice::memory_export(const MemoryRef& memory, uint64_t address, const Exported& done) {
  if (const CUresult error = scheduler_.error()) return done(error, {}, 0, 0);
  if (memory) {
    const auto& physical = static_cast<const PhysicalMemory&>(*memory);
    UniqueFd file(::fcntl(physical.file.get(), F_DUPFD_CLOEXEC, 0));
    const CUresult result = file ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (file) physical.share();
    return done(result, std::move(file), physical.bytes, 0);
  }
  // Later ones will not have to wait.
  memory_->share_new();
  if (const auto allocation = memory_->find(address); allocation && allocation->file && allocation->live) {
    UniqueFd file(::fcntl(allocation->file->get(), F_DUPFD_CLOEXEC, 0));
    const CUresult result = file ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return done(result, std::move(file), allocation->mapped, 0);
  }
  alone([table = memory_, address, done](CUresult status) {
    std::shared_ptr<const UniqueFd> shared;
    uint64_t bytes = 0;
    if (!status) status = table->share_pages(address, &shared, &bytes);
    UniqueFd file(status ? -1 : ::fcntl(shared->get(), F_DUPFD_CLOEXEC, 0));
    if (!status && !file) status = CUDA_ERROR_OUT_OF_MEMORY;
    done(status, std::move(file), bytes, 0);
  });
}

void SoftDevice::alone(Done body) {
  const std::vector<SoftContextRef> all = contexts();
  if (all.empty()) return body(scheduler_.error());
  auto op = std::make_shared<CallOp>(all.front(), nullptr);
  op->done = std::move(body);
  bool ready = false;
  {
    std::lock_guard lock(scheduler_.mutex());
    Ops after;
    for (const SoftContextRef& context : all) follow_context(*context, &after);
    ready = scheduler_.link(op, after);
    for (const SoftContextRef& context : all) {
      if (context->legacy) context->legacy->tail = op;
      for (const auto& weak : context->streams) {
        if (const auto stream = weak.lock()) stream->tail = op;
      }
    }
  }
  if (ready) scheduler_.start(op);
}

CUresult SoftDevice::memory_import(int fd, uint64_t bytes, MemoryRef* memory) {
  if (const CUresult error = scheduler_.error()) return error;
  return with_room([&] { return PhysicalMemory::import(memory_, fd, bytes, memory); });
}

CUresult SoftDevice::memory_borrow(int fd, uint64_t bytes, MemoryRef* memory) {
  if (const CUresult error = scheduler_.error()) return error;
  return PhysicalMemory::borrow(memory_, fd, bytes, memory);
}

void SoftDevice::memory_revoke(const MemoryRef& memory) { reservations_.revoke(memory); }

CUresult SoftDevice::event_export(const EventRef& event, EventToken* token, UniqueFd* fd) {
  if (const CUresult error = scheduler_.error()) return error;
  const std::shared_ptr<SharedEvent>& shared = as(event).shared;
  if (!shared) return CUDA_ERROR_INVALID_HANDLE;
  token->fill(0);  // the descriptor says all
  fd->reset(::fcntl(shared->fd(), F_DUPFD_CLOEXEC, 0));
  return *fd ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SoftDevice::event_import(const ContextRef& context, const EventToken&, int fd, EventRef* event) {
  if (const CUresult error = scheduler_.error()) return error;
  auto shared = SharedEvent::import(fd);
  if (!shared) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<SoftEvent>(as(context), CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  made->shared = std::move(shared);
  *event = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
