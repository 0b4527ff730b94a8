#include <algorithm>

#include "backend/device/errors.h"
#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {

using wire::HandleKind;

CUresult Handlers::give(HandleKind kind, ObjectRef object, uint64_t owner, uint64_t* handle, bool once) {
  if (!object) return CUDA_ERROR_UNKNOWN;  // a device that succeeded without an object
  *handle = once ? table().add_once(kind, std::move(object), owner) : table().add(kind, std::move(object), owner);
  return *handle != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void finish_async(CommandRing& ring, const vgpu_done& done, CUresult result) {
  if (done.token != 0) {
    ring.done(done, result);
  } else if (result != CUDA_SUCCESS && !is_sticky(result)) {
    ring.set_late_error(result);
  }
}

namespace {

// A program sees the virtual GPU, not what it is cut from: programs and NVML tell devices apart by these.
void put_identity(const VgpuIdentity& identity, vgpu_device_info* info) {
  if (identity.name.empty()) return;
  identity.name.copy(info->vgpu, sizeof info->vgpu - 1);
  std::copy(identity.uuid.begin(), identity.uuid.end(), info->uuid);
  info->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] = static_cast<int32_t>(identity.pci_domain);
  info->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = static_cast<int32_t>(identity.pci_bus);
  info->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] = 0;
}

}  // namespace

CUresult Handlers::call_ids(C, std::string* ids) {
  ids->assign(reinterpret_cast<const char*>(wire::kIdOfCall + 1), (wire::kOpcodes - 1) * sizeof(uint64_t));
  return CUDA_SUCCESS;
}

CUresult Handlers::device_info(C, vgpu_device_info* info) {
  device_.info(info);
  put_identity(world_.identity, info);
  info->total_bytes = std::min<uint64_t>(info->total_bytes, world_.usage_page.share());
  return CUDA_SUCCESS;
}

CUresult Handlers::memory_info(C, uint64_t* free, uint64_t* total) {
  device_.memory_info(free, total);
  const uint64_t share = world_.usage_page.share(), used = std::min(share, world_.usage_page.used());
  if (world_.usage_page.swaps()) *free = *total = share;  // there may be more than the device has
  *total = std::min(*total, share);
  *free = std::min(*free, share - used);
  return CUDA_SUCCESS;
}

CUresult Handlers::fetch_output(C, std::string* text) {
  *text = world_.output.fetch(VGPU_RING_REPLY_BYTES - sizeof(wire::FetchOutputReply));
  return CUDA_SUCCESS;
}

void Handlers::next_callback(C, uint64_t finished, wire::NextCallbackAnswer answer) {
  world_.callbacks.next(finished, std::move(answer));
}

CUresult Handlers::context_create(C, uint32_t flags, uint32_t, uint64_t* context) {
  ContextRef made;
  const CUresult result = device_.context_create(flags, &made);
  return result == CUDA_SUCCESS ? give(HandleKind::kContext, std::move(made), 0, context) : result;
}

CUresult Handlers::context_destroy(C, R<Context> context) {
  // First the handles, so that no new work comes; whoever loses a race for them has nothing to destroy.
  if (!table().remove(HandleKind::kContext, context.handle)) return CUDA_ERROR_INVALID_CONTEXT;
  world_.objects.forget_context(context.object.get());
  world_.slicer.forget_context(context.object.get());
  withdraw_of(context.handle);
  return device_.context_destroy(context);
}

CUresult Handlers::context_reset(C, R<Context> context) {
  // The old one goes first: a memory share need not hold two.
  table().remove_owned(context.handle);
  world_.objects.forget_context(context.object.get());
  world_.slicer.forget_context(context.object.get());
  withdraw_of(context.handle);
  if (const CUresult result = device_.context_destroy(context)) return result;
  ContextRef fresh;
  if (const CUresult result = device_.context_create(0, &fresh)) return result;
  if (table().replace(context.handle, fresh)) return CUDA_SUCCESS;
  device_.context_destroy(fresh);
  return CUDA_ERROR_INVALID_CONTEXT;
}

void Handlers::context_synchronize(C, R<Context> context, wire::Answer answer) {
  device_.context_synchronize(context, answer);
}

CUresult Handlers::context_get_limit(C call, uint32_t limit, uint64_t* value) {
  if (limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  return device_.context_get_limit(call.context, static_cast<CUlimit>(limit), value);
}

CUresult Handlers::context_reset_l2(C call) { return device_.context_reset_l2(call.context); }

CUresult Handlers::context_set_limit(C call, uint32_t limit, uint64_t value) {
  if (limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  return device_.context_set_limit(call.context, static_cast<CUlimit>(limit), value);
}

}  // namespace bandsaw::runner
