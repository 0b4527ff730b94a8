#include "backend/device/soft/shared_event.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "backend/device/soft/scheduler.h"
#include "backend/device/soft/shared_memory.h"

namespace bandsaw::soft {

std::shared_ptr<SharedEvent> SharedEvent::map(UniqueFd file) {
  if (!file) return nullptr;
  void* const at = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedEvent>(new SharedEvent(std::move(file), static_cast<Words*>(at)));
}

std::shared_ptr<SharedEvent> SharedEvent::make() { return map(make_sealed_file("bandsaw-event", kPage)); }

std::shared_ptr<SharedEvent> SharedEvent::import(int fd) {
  if (fd < 0 || !is_sealed_file(fd, kPage)) return nullptr;
  return map(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

SharedEvent::~SharedEvent() { ::munmap(words_, kPage); }

void SharedEvent::complete(uint64_t record) {
  uint64_t known = words_->complete.load();
  while (known < record && !words_->complete.compare_exchange_weak(known, record)) continue;
}

bool SharedEventWait::ready(CUresult* status) const {
  if (cancelled_) *status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return cancelled_ || event_->is_complete(record_);
}

bool SharedEventWait::start(Scheduler& scheduler, CUresult* status) {
  if (ready(status)) return true;
  auto self = std::static_pointer_cast<SharedEventWait>(shared_from_this());
  scheduler.poll({self, [self](CUresult* result) { return self->ready(result); }});
  return false;
}

}  // namespace bandsaw::soft
