// User objects: reference-counted resources of the program that graphs keep alive.
#include <algorithm>
#include <map>

#include "guest-driver/libcuda/api/graph.h"
#include "guest-driver/libcuda/api/graph_copy.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {

// Destroyed with its last reference, on the thread that drops it.
struct UserObject {
  CUhostFn destroy = nullptr;
  void* data = nullptr;
  ~UserObject() { destroy(data); }
};

namespace {

using References = std::vector<std::shared_ptr<UserObject>>;

// Each reference is an entry in a list.
CUresult check_count(unsigned count) {
  constexpr unsigned kMost = 1u << 20;
  if (count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  return count <= kMost ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct Entry {
  std::weak_ptr<UserObject> object;
  References own;  // the program's references
};

struct Registry {
  std::mutex mutex;
  uint64_t next = 1;
  std::map<uint64_t, Entry> objects;

  // nullptr for handles that are none, or no longer.
  std::shared_ptr<UserObject> find(CUuserObject handle) {
    const auto found = objects.find(to_wire(handle));
    return found == objects.end() ? nullptr : found->second.object.lock();
  }
};

Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

// Moves `count` references out of a list; false if it has fewer.
bool take(References* list, unsigned count, References* out) {
  if (list->size() < count) return false;
  out->insert(out->end(), list->end() - count, list->end());
  list->resize(list->size() - count);
  return true;
}

void let_go(void* references) { delete static_cast<References*>(references); }

}  // namespace

void let_go_behind_launches(Call& call, GraphRecord* exec) {
  auto gone = std::make_unique<References>();
  {
    std::lock_guard lock(exec->mutex);
    gone->swap(exec->kept);
  }
  const uint64_t stream = exec->launched_on.load(std::memory_order_relaxed);
  const bool is_there = stream != 0 && (stream <= VGPU_STREAM_PER_THREAD || streams().find(stream));
  // In a stream that captures it would become a node.
  if (gone->empty() || !is_there || active_captures != 0 || !call.require_context() || !call.route(stream)) return;
  const CUresult result =
      put_host_function(call, stream, reinterpret_cast<uint64_t>(&let_go), gone.get(), VGPU_CALLBACK_HOST_FUNCTION);
  if (result == CUDA_SUCCESS) static_cast<void>(gone.release());
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned count, unsigned flags) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!object || !destroy || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = check_count(count)) return refused;
  auto made = std::make_shared<UserObject>();
  made->destroy = destroy;
  made->data = data;
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const uint64_t handle = all.next++;
  std::erase_if(all.objects, [](const auto& entry) { return entry.second.object.expired(); });
  all.objects.emplace(handle, Entry{made, References(count, made)});
  *object = from_wire<CUuserObject>(handle);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto reference = all.find(object);
  if (!reference) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = check_count(count)) return refused;
  References& own = all.objects[to_wire(object)].own;
  own.insert(own.end(), count, reference);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  References gone;  // declared before the lock: destroyed after it is given back
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  if (!count || !all.find(object)) return CUDA_ERROR_INVALID_VALUE;
  return take(&all.objects[to_wire(object)].own, count, &gone) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  GraphRecord* const record = find_graph(graph);
  if (!record || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE})) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = check_count(count)) return refused;
  Registry& all = registry();
  std::scoped_lock lock(all.mutex, record->mutex);
  const auto reference = all.find(object);
  if (!reference) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_GRAPH_USER_OBJECT_MOVE) {
    References& own = all.objects[to_wire(object)].own;
    return take(&own, count, &record->kept) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  record->kept.insert(record->kept.end(), count, reference);
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  GraphRecord* const record = find_graph(graph);
  if (!record || !count) return CUDA_ERROR_INVALID_VALUE;
  References gone;
  Registry& all = registry();
  std::scoped_lock lock(all.mutex, record->mutex);
  const auto reference = all.find(object);
  References& kept = record->kept;
  if (!reference || std::count(kept.begin(), kept.end(), reference) < count) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = kept.begin(); count > 0;) {
    if (*it == reference) {
      gone.push_back(std::move(*it));
      it = kept.erase(it);
      --count;
    } else {
      ++it;
    }
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
