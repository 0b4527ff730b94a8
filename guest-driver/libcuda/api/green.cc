// Green contexts: parts of the device's SMs. Each stands for the primary context, whose memory and code it shares; what
// sets it apart is that kernels on the streams made in it run on its SMs only. Its default stream is the primary's.
//
// A CUgreenCtx is the pointer that its CUcontext is, too: the CUDA runtime takes one for the other.
#include "guest-driver/libcuda/api/green.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "guest-driver/libcuda/api/green_queue.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/newer_types.h"
#include "guest-driver/libcuda/wire_client.h"

// cuda.h names this; what is in it is ours.
struct CUdevResourceDesc_st {
  bandsaw::libcuda::SmRange range;  // none: all SMs
  bandsaw::libcuda::QueueConfig queues;
  std::optional<CUdevice> device;  // whose queues those are
};

namespace bandsaw::libcuda {
namespace {

// What resources carry where cuda.h has padding, so that one can be told from bytes that a program made up.
struct Carried {
  uint64_t magic;
  SmRange range;
};
constexpr uint64_t kCarried = 0x42616e6473617753;  // "BandsawS"
static_assert(sizeof(Carried) <= sizeof(CUdevResource::_internal_padding));

struct GreenContexts {
  std::mutex mutex;
  std::set<const Context*> alive;            // each with the primary's handle on the wire
  std::set<CUdevResourceDesc> descriptions;  // no call gives one back
};

GreenContexts& green_contexts() {
  static GreenContexts& all = *new GreenContexts;
  return all;
}

uint32_t sms_of(CUdevice device) {
  return static_cast<uint32_t>(device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
}
uint32_t device_sms() { return sms_of(current_gpu().ordinal); }

// SMs are given out in groups of so many; a device of few gives each by itself.
uint32_t group_of_sms() { return device_sms() >= 16 ? 8 : 1; }

bool range_of(const CUdevResource& resource, SmRange* range) {
  Carried carried;
  std::memcpy(&carried, resource._internal_padding, sizeof(carried));
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM || carried.magic != kCarried) return false;
  *range = carried.range;
  return range->count > 0 && range->first <= device_sms() && range->count <= device_sms() - range->first;
}

// nullptr: there is no such green context.
Context* find_green(CUgreenCtx green) {
  auto* const meant = reinterpret_cast<Context*>(green);
  std::lock_guard lock(green_contexts().mutex);
  return green_contexts().alive.contains(meant) ? meant : nullptr;
}

// Streams of a green context go with it.
void destroy_streams_of(Call& call, const Context* context) {
  std::vector<uint64_t> gone;
  streams().for_each([&](const StreamRecord& stream) {
    if (stream.context == context) gone.push_back(stream.handle);
  });
  for (const uint64_t stream : gone) {
    wire::stream_destroy(call, stream);
    forget_capture(stream);
    streams().remove(stream);
  }
}

// How many of the SMs that are left a group takes; 0 in `asked` is as many as possible, which may be none.
CUresult sms_asked(const CU_DEV_SM_RESOURCE_GROUP_PARAMS& asked, uint32_t left, uint32_t* taken) {
  constexpr unsigned kBackfill = 1;  // CU_DEV_SM_RESOURCE_GROUP_BACKFILL: the groups within it are only wished for
  constexpr unsigned kTogetherMost = 32;
  const uint32_t together = asked.coscheduledSmCount ? asked.coscheduledSmCount : group_of_sms();
  if (asked.flags & ~kBackfill) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;  // there are no localities
  if (together > kTogetherMost || (asked.coscheduledSmCount & 1)) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t unit = asked.flags & kBackfill ? 1 : together;
  *taken = asked.smCount ? asked.smCount : left / unit * unit;
  if (asked.smCount & 1 || *taken % unit) return CUDA_ERROR_INVALID_VALUE;
  return *taken <= left ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

// One range of neighbours, in whatever order they are given.
bool join(std::vector<SmRange> ranges, SmRange* whole) {
  std::sort(ranges.begin(), ranges.end(), [](const SmRange& a, const SmRange& b) { return a.first < b.first; });
  *whole = ranges.front();
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first != whole->first + whole->count) return false;
    whole->count += ranges[i].count;
  }
  return true;
}

}  // namespace

CUdevResource resource_of(const SmRange& range) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  const Carried carried{kCarried, range};
  std::memcpy(resource._internal_padding, &carried, sizeof(carried));
  resource.sm.smCount = range.count;
  resource.sm.minSmPartitionSize = resource.sm.smCoscheduledAlignment = group_of_sms();
  return resource;
}

CUgreenCtx green_of(const Context* context) {
  const auto green = reinterpret_cast<CUgreenCtx>(const_cast<Context*>(context));
  return find_green(green) ? green : nullptr;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  if (!resource) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM && !is_queue_type(type)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = is_queue_type(type) ? queue_resource(type, device, {}) : resource_of({0, sms_of(device)});
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  const Context* const found = from_program(context);
  if (!found) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = cuDeviceGetDevResource(found->device, resource, type);
  if (result != CUDA_SUCCESS) return result;
  if (is_queue_type(type)) {
    *resource = queue_resource(type, found->device, found->queues);
  } else if (found->sms.count) {
    *resource = resource_of(found->sms);
  }
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  Context* const context = find_green(green);
  return context ? cuCtxGetDevResource(to_program(context), resource, type) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* groups, unsigned* count, const CUdevResource* input,
                                     CUdevResource* rest, unsigned flags, unsigned least) {
  constexpr unsigned kFlags =
      CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  if (!count || !input || (flags & ~kFlags)) return CUDA_ERROR_INVALID_VALUE;
  SmRange range;
  if (!range_of(*input, &range)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const uint32_t group = group_of_sms();
  const uint64_t size = (uint64_t{std::max(least, 1u)} + group - 1) / group * group;
  const auto possible = static_cast<unsigned>(range.count / size);
  if (!possible) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (!groups) {
    *count = possible;
    return CUDA_SUCCESS;
  }
  *count = std::min(*count, possible);
  const auto each = static_cast<uint32_t>(size);
  for (unsigned i = 0; i < *count; ++i) groups[i] = resource_of({range.first + i * each, each});
  const uint32_t taken = *count * each;
  if (rest && range.count > taken) *rest = resource_of({range.first + taken, range.count - taken});
  if (rest && range.count == taken) *rest = CUdevResource{};
  return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplit(CUdevResource* groups, unsigned count, const CUdevResource* input, CUdevResource* rest,
                              unsigned flags, CU_DEV_SM_RESOURCE_GROUP_PARAMS* asked) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  if (!count || !input || !asked || flags) return CUDA_ERROR_INVALID_VALUE;
  SmRange left;
  if (!range_of(*input, &left)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  std::vector<SmRange> ranges;
  for (unsigned i = 0; i < count; ++i) {
    uint32_t taken = 0;
    const CUresult result = sms_asked(asked[i], left.count, &taken);
    if (result != CUDA_SUCCESS) return result;
    if (groups && !taken) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    ranges.push_back({left.first, taken});
    left = {left.first + taken, left.count - taken};
  }
  for (unsigned i = 0; i < count; ++i) {
    asked[i].smCount = ranges[i].count;
    if (groups) groups[i] = resource_of(ranges[i]);
  }
  if (rest) *rest = left.count ? resource_of(left) : CUdevResource{};
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  if (!description || !resources || !count) return CUDA_ERROR_INVALID_VALUE;
  CUdevResourceDesc_st made{};
  std::vector<SmRange> ranges;
  for (unsigned i = 0; i < count; ++i) {
    if (!is_queue_type(resources[i].type)) {
      if (!range_of(resources[i], &ranges.emplace_back())) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
      continue;
    }
    if (made.device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;  // a context has queues of one kind
    const CUresult result = read_queues(resources[i], &made.device.emplace(), &made.queues);
    if (result != CUDA_SUCCESS) return result;
  }
  if (!ranges.empty() && !join(std::move(ranges), &made.range)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  *description = new CUdevResourceDesc_st(made);
  std::lock_guard lock(green_contexts().mutex);
  green_contexts().descriptions.insert(*description);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc description, CUdevice device, unsigned flags) {
  // From CUDA 13.1 on no flag need be set, and the runtime sets none. A default stream unasked for does no harm.
  if (!green || (flags & ~CU_GREEN_CTX_DEFAULT_STREAM)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  {
    std::lock_guard lock(green_contexts().mutex);
    if (!green_contexts().descriptions.contains(description)) return CUDA_ERROR_INVALID_VALUE;
    if (description->device.value_or(device) != device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  CUcontext primary = nullptr;
  if (const CUresult result = cuDevicePrimaryCtxRetain(&primary, device); result != CUDA_SUCCESS) return result;
  Context* const made = new_context(&gpu_at(device), false);
  made->handle = from_program(primary)->handle;
  made->flags = from_program(primary)->flags;
  made->api_version = 3020;
  made->sms = description->range;
  made->queues = description->queues;
  *green = reinterpret_cast<CUgreenCtx>(made);
  std::lock_guard lock(green_contexts().mutex);
  green_contexts().alive.insert(made);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  Call call;
  auto* const context = reinterpret_cast<Context*>(green);
  {
    std::lock_guard lock(green_contexts().mutex);
    if (green_contexts().alive.erase(context) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  }
  call.set_context(context->handle);
  destroy_streams_of(call, context);
  context->handle = 0;
  return cuDevicePrimaryCtxRelease_v2(context->device);
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  Context* const found = find_green(green);
  if (!found) return CUDA_ERROR_INVALID_CONTEXT;
  *context = to_program(found);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned flags, int priority) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  Context* const context = find_green(green);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!(flags & CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = cuCtxPushCurrent_v2(to_program(context)); result != CUDA_SUCCESS) return result;
  const CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
  CUcontext popped = nullptr;
  cuCtxPopCurrent_v2(&popped);
  return result;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  Context* const context = find_green(green);
  return context ? cuCtxRecordEvent(to_program(context), event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  Context* const context = find_green(green);
  return context ? cuCtxWaitEvent(to_program(context), event) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long* id) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  const Context* const context = find_green(green);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}

}  // extern "C"
