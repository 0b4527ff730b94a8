// A Device that does next to nothing, for tests of what stands in front of it: memory is bytes, copies and fills
// happen at once (or when the test says so), everything else is an object or CUDA_ERROR_NOT_SUPPORTED.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/device/device.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw {

struct FakeNode : Node {
  NodeContent content;
  std::vector<NodeRef> before;
};

struct FakeGraph : Graph {
  std::vector<NodeRef> nodes;
};

// `base` is where the device's half of a reserved window begins; the first kBytes of it become memory.
class FakeDevice : public Device {
 public:
  static constexpr uint64_t kBytes = 1 << 20;

  FakeDevice(uint64_t base, DeviceHost* host) : host_(host), base_(base), next_(base) {
    mmap(reinterpret_cast<void*>(base), kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }

  DeviceHost* host() { return host_; }

  // Copies and synchronisations wait for finish() while this is set.
  void hold_work(bool hold) {
    std::lock_guard lock(mutex_);
    hold_ = hold;
  }
  void finish() {
    std::vector<std::function<void()>> work;
    {
      std::lock_guard lock(mutex_);
      hold_ = false;
      work.swap(waiting_);
    }
    for (auto& job : work) job();
  }
  size_t waiting() {
    std::lock_guard lock(mutex_);
    return waiting_.size();
  }
  CUresult next_result = CUDA_SUCCESS;  // of the next stream work's completion
  std::vector<std::byte> last_image;

  void info(vgpu_device_info* info) override {
    std::strcpy(info->name, "fake");
    info->total_bytes = kBytes;
  }
  void memory_info(uint64_t* free_bytes, uint64_t* total_bytes) override { *free_bytes = *total_bytes = kBytes; }
  CUresult context_create(uint32_t, ContextRef* context) override { return make(context); }
  CUresult context_destroy(const ContextRef&) override { return CUDA_SUCCESS; }
  void context_synchronize(const ContextRef&, Done done) override {
    later([done] { done(CUDA_SUCCESS); });
  }
  CUresult context_get_limit(const ContextRef&, CUlimit, uint64_t* value) override {
    *value = 4096;
    return CUDA_SUCCESS;
  }
  CUresult context_set_limit(const ContextRef&, CUlimit, uint64_t) override { return CUDA_SUCCESS; }
  CUresult library_load(std::span<const std::byte> image, LibraryRef* library, std::string* log) override {
    last_image.assign(image.begin(), image.end());
    if (image.size() < 4 || std::memcmp(image.data(), "good", 4) != 0) {
      *log = "not good";
      return CUDA_ERROR_INVALID_IMAGE;
    }
    return make(library);
  }
  CUresult library_unload(const LibraryRef&) override { return CUDA_SUCCESS; }
  CUresult library_kernel_names(const LibraryRef&, std::vector<std::string>* names) override {
    *names = {"first", "second"};
    return CUDA_SUCCESS;
  }
  CUresult library_kernel(const LibraryRef&, const std::string&, KernelRef* kernel) override { return make(kernel); }
  CUresult library_global(const ContextRef&, const LibraryRef&, const std::string&, uint64_t*, uint64_t*) override {
    return CUDA_ERROR_NOT_FOUND;
  }
  CUresult variable_around(const ContextRef&, uint64_t, uint64_t*, uint64_t*) override { return CUDA_ERROR_NOT_FOUND; }
  CUresult library_managed(const LibraryRef&, std::vector<ManagedVariable>* variables) override {
    *variables = {{"shared", 64}};
    return CUDA_SUCCESS;
  }
  CUresult library_bind_managed(const LibraryRef&, const std::string&, uint64_t,
                                const std::shared_ptr<std::byte>&) override {
    return CUDA_SUCCESS;
  }
  CUresult kernel_function(const ContextRef&, const KernelRef&, FunctionRef* function) override {
    return make(function);
  }
  CUresult module_load(const ContextRef&, std::span<const std::byte>, ModuleRef* module, std::string*) override {
    return make(module);
  }
  CUresult module_unload(const ModuleRef&) override { return CUDA_SUCCESS; }
  CUresult module_function_names(const ModuleRef&, std::vector<std::string>*) override { return CUDA_SUCCESS; }
  CUresult module_function(const ModuleRef&, const std::string&, FunctionRef* function) override {
    return make(function);
  }
  CUresult module_global(const ModuleRef&, const std::string&, uint64_t*, uint64_t*) override {
    return CUDA_ERROR_NOT_FOUND;
  }
  CUresult function_info(const Code&, FunctionInfo* info) override {
    info->parameters = {{0, 8}, {8, 4}};
    info->info.parameter_bytes = 12;
    return CUDA_SUCCESS;
  }
  CUresult function_set_attribute(const Code&, CUfunction_attribute, int32_t) override { return CUDA_SUCCESS; }
  CUresult occupancy(const Code&, uint32_t, uint64_t, uint32_t* blocks) override {
    *blocks = 2;
    return CUDA_SUCCESS;
  }

  CUresult memory_alloc(const ContextRef&, uint64_t bytes, uint64_t* address) override {
    std::lock_guard lock(mutex_);
    if (bytes > base_ + kBytes - next_) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = next_;
    next_ += (bytes + 255) / 256 * 256;
    return CUDA_SUCCESS;
  }
  void memory_free(uint64_t address, Done done) override {
    const bool known = is_memory(address);
    later([done, known] { done(known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE); });
  }
  CUresult managed_add(const ContextRef&, uint64_t, uint64_t) override { return CUDA_SUCCESS; }
  void managed_remove(uint64_t, Done done) override { done(CUDA_SUCCESS); }
  void settle(Done done) override { done(CUDA_SUCCESS); }
  CUresult pool_create(const vgpu_pool_props&, PoolRef* pool) override { return make(pool); }
  CUresult pool_default(PoolRef* pool) override {
    *pool = default_pool_;
    return CUDA_SUCCESS;
  }
  CUresult pool_trim(const PoolRef&, uint64_t) override { return CUDA_SUCCESS; }
  CUresult pool_get_attribute(const PoolRef&, CUmemPool_attribute, uint64_t*) override { return CUDA_SUCCESS; }
  CUresult pool_set_attribute(const PoolRef&, CUmemPool_attribute, uint64_t) override { return CUDA_SUCCESS; }
  CUresult memory_alloc_async(const StreamRef&, const PoolRef&, uint64_t bytes, uint64_t* address) override {
    return memory_alloc(nullptr, bytes, address);
  }
  CUresult memory_free_async(const StreamRef&, uint64_t) override { return CUDA_SUCCESS; }

  CUresult copy(const StreamRef&, const Copy& copy, Done done) override {
    if (!fits(copy, copy.destination) || !fits(copy, copy.source)) return CUDA_ERROR_INVALID_VALUE;
    ++copies_begun;
    while (callbacks_done < copies_need_callbacks) std::this_thread::sleep_for(std::chrono::microseconds(100));
    later([this, copy, done] {
      for (uint64_t z = 0; z < copy.depth; ++z) {
        for (uint64_t y = 0; y < copy.height; ++y) move_row(copy, y, z);
      }
      done(std::exchange(next_result, CUDA_SUCCESS));
    });
    return CUDA_SUCCESS;
  }
  CUresult fill(const StreamRef&, const vgpu_fill&, Done done) override {
    if (done) done(CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  CUresult launch(const StreamRef&, const Launch& launch) override {
    launched.assign(launch.parameters.begin(), launch.parameters.end());
    ++launches;
    return std::exchange(next_result, CUDA_SUCCESS);
  }
  std::vector<std::byte> launched;
  int launches = 0;
  CUresult callback(const StreamRef&, const HostCallback& callback) override {
    host_->run_callback(callback, CUDA_SUCCESS, [this](CUresult) { ++callbacks_done; });
    return CUDA_SUCCESS;
  }
  std::atomic<int> callbacks_done{0};
  std::atomic<int> copies_begun{0};
  std::atomic<int> copies_need_callbacks{0};  // a copy keeps its caller until so many are done
  std::atomic<int> ends_need_callbacks{0};    // so does the end of a time slice
  void time_slice_end(unsigned, TimeSliceDone done) override {
    while (callbacks_done < ends_need_callbacks) std::this_thread::sleep_for(std::chrono::microseconds(100));
    done(0);
  }
  CUresult write_value(const StreamRef&, uint64_t, uint64_t, uint32_t, uint32_t) override { return CUDA_SUCCESS; }
  CUresult wait_value(const StreamRef&, uint64_t, uint64_t, uint32_t, uint32_t) override { return CUDA_SUCCESS; }

  CUresult stream_create(const ContextRef&, uint32_t, int32_t, StreamRef* stream) override {
    ++streams;
    return make(stream);
  }
  int streams = 0;
  StreamRef stream_legacy(const ContextRef&) override { return legacy_; }
  CUresult stream_destroy(const StreamRef&) override { return CUDA_SUCCESS; }
  CUresult stream_query(const StreamRef&) override { return CUDA_SUCCESS; }
  void stream_synchronize(const StreamRef&, Done done) override {
    ++synchronizations;
    later([done] { done(CUDA_SUCCESS); });
  }
  std::atomic<int> synchronizations{0};
  void stream_when_done(const StreamRef&, Done done) override {
    later([done] { done(CUDA_SUCCESS); });
  }
  CUresult stream_wait_event(const StreamRef&, const EventRef&, uint32_t) override { return CUDA_SUCCESS; }
  CUresult event_create(const ContextRef&, uint32_t, EventRef* event) override { return make(event); }
  CUresult event_destroy(const EventRef&) override { return CUDA_SUCCESS; }
  CUresult event_record(const EventRef&, const StreamRef&, uint32_t) override { return CUDA_SUCCESS; }
  CUresult event_query(const EventRef&) override { return CUDA_SUCCESS; }
  void event_synchronize(const EventRef&, Done done) override { done(CUDA_SUCCESS); }
  CUresult event_elapsed(const EventRef&, const EventRef&, float* milliseconds) override {
    *milliseconds = 1.5f;
    return CUDA_SUCCESS;
  }

  CUresult capture_begin(const StreamRef&, CUstreamCaptureMode, const GraphRef&, std::span<const NodeRef>) override {
    return CUDA_SUCCESS;
  }
  CUresult capture_end(const StreamRef&, GraphRef* graph) override { return graph_create(graph); }
  CUresult capture_info(const StreamRef&, CaptureInfo*) override { return CUDA_SUCCESS; }
  CUresult capture_update(const StreamRef&, uint32_t, std::span<const NodeRef>) override { return CUDA_SUCCESS; }
  CUresult graph_create(GraphRef* graph) override {
    *graph = std::make_shared<FakeGraph>();
    return CUDA_SUCCESS;
  }
  CUresult graph_clone(const GraphRef&, GraphRef* clone) override { return graph_create(clone); }
  CUresult graph_add_node(const GraphRef& graph, std::span<const NodeRef> dependencies, const NodeContent& content,
                          NodeRef* node, uint64_t*) override {
    auto made = std::make_shared<FakeNode>();
    made->content = content;
    made->content.launch.parameters = made->content.parameter_bytes;
    made->before.assign(dependencies.begin(), dependencies.end());
    static_cast<FakeGraph&>(*graph).nodes.push_back(made);
    *node = made;
    return CUDA_SUCCESS;
  }
  CUresult graph_nodes(const GraphRef& graph, bool, std::vector<NodeRef>* nodes) override {
    *nodes = static_cast<FakeGraph&>(*graph).nodes;
    return CUDA_SUCCESS;
  }
  CUresult graph_edges(const GraphRef& graph, std::vector<std::pair<NodeRef, NodeRef>>* edges) override {
    for (const NodeRef& node : static_cast<FakeGraph&>(*graph).nodes) {
      for (const NodeRef& before : static_cast<FakeNode&>(*node).before) edges->emplace_back(before, node);
    }
    return CUDA_SUCCESS;
  }
  CUresult graph_change_edges(const GraphRef&, bool, std::span<const std::pair<NodeRef, NodeRef>>) override {
    return CUDA_SUCCESS;
  }
  CUresult node_neighbours(const NodeRef& node, bool, std::vector<NodeRef>* nodes) override {
    *nodes = static_cast<FakeNode&>(*node).before;
    return CUDA_SUCCESS;
  }
  CUresult node_get(const NodeRef& node, NodeContent* content) override {
    *content = static_cast<FakeNode&>(*node).content;
    return CUDA_SUCCESS;
  }
  CUresult node_set(const NodeRef& node, const NodeContent& content) override {
    static_cast<FakeNode&>(*node).content = content;
    return CUDA_SUCCESS;
  }
  CUresult node_find_in_clone(const NodeRef&, const GraphRef&, NodeRef*) override { return CUDA_ERROR_NOT_FOUND; }
  CUresult node_destroy(const NodeRef&) override { return CUDA_SUCCESS; }
  CUresult graph_instantiate(const ContextRef&, const GraphRef&, uint64_t, ExecRef* exec) override {
    return make(exec);
  }
  CUresult exec_update(const ExecRef&, const GraphRef&, CUgraphExecUpdateResult* result, NodeRef*) override {
    *result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return CUDA_SUCCESS;
  }
  CUresult exec_node_set(const ExecRef&, const NodeRef&, const NodeContent&) override { return CUDA_SUCCESS; }
  CUresult exec_node_enable(const ExecRef&, const NodeRef&, bool) override { return CUDA_SUCCESS; }
  CUresult exec_node_enabled(const ExecRef&, const NodeRef&, bool* enabled) override {
    *enabled = true;
    return CUDA_SUCCESS;
  }
  CUresult exec_launch(const ExecRef&, const StreamRef&) override { return CUDA_SUCCESS; }

  bool is_memory(uint64_t address) const { return address >= base_ && address < base_ + kBytes; }

 private:
  template <typename T>
  CUresult make(std::shared_ptr<T>* object) {
    *object = std::make_shared<T>();
    return CUDA_SUCCESS;
  }
  void later(std::function<void()> job) {
    {
      std::lock_guard lock(mutex_);
      if (hold_) {
        waiting_.push_back(std::move(job));
        return;
      }
    }
    job();
  }
  bool fits(const Copy& copy, const CopyEnd& end) const {
    if (end.host) return true;  // the runner has checked it
    if (!is_memory(end.address)) return false;
    const unsigned __int128 bytes =
        static_cast<unsigned __int128>(copy.depth - 1) * (copy.depth > 1 ? end.pitch : 0) * end.height +
        static_cast<unsigned __int128>(copy.height - 1) * (copy.height > 1 ? end.pitch : 0) + copy.width_bytes;
    return bytes <= base_ + kBytes - end.address;
  }
  static void move_row(const Copy& copy, uint64_t y, uint64_t z) {
    const auto at = [&](const CopyEnd& end) {
      return reinterpret_cast<std::byte*>(end.address + (z * end.height + y) * end.pitch);
    };
    std::memmove(at(copy.destination), at(copy.source), copy.width_bytes);
  }

  DeviceHost* const host_;
  const uint64_t base_;
  std::mutex mutex_;
  uint64_t next_;
  bool hold_ = false;
  std::vector<std::function<void()>> waiting_;
  const PoolRef default_pool_ = std::make_shared<Pool>();
  const StreamRef legacy_ = std::make_shared<Stream>();
};

}  // namespace bandsaw
