// A physical or software GPU as one guest process sees it.
//
// One runner process holds one Device, made for one guest process: it is the fault domain (a sticky error ends every
// context in it) and the memory-protection domain. The runner has already checked record sizes, handle kinds and guest
// addresses; a Device checks what only it knows and answers with CUDA's own error codes. No call throws.
//
// Threads: every method may be called from any thread. The runner calls in the order of the guest's records; methods
// that put work on a stream return at once, and the work runs in stream order. `Done` callbacks come from the device's
// own threads, must be short, and must not call the device.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/device/device_config.h"
#include "backend/device/device_host.h"
#include "backend/device/keep.h"
#include "backend/device/moving_memory.h"
#include "backend/device/object.h"
#include "guest-driver/uapi/vgpu_wire.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"
#include "vgpu-sched/engine.h"

namespace bandsaw {

// Told how long the engine worked on a time slice, in nanoseconds.
using TimeSliceDone = std::function<uint64_t(uint64_t busy_ns)>;  // returns what of it is to be charged

struct FunctionInfo {
  vgpu_function_info info{};
  std::vector<vgpu_parameter> parameters;
};

struct ManagedVariable {
  std::string name;
  uint64_t bytes = 0;
};

class GivesAgain;

struct LinkOption {
  CUjit_option option;  // one whose value is a number
  uint32_t value;
};

// One end of a copy after the runner's translation: an array if there is one, with x, y, z; else a pointer in the
// runner, valid until the copy is done (`host`), or an address in the device's window, with x, y, z folded in.
struct CopyEnd {
  uint64_t address = 0;
  uint64_t pitch = 0;   // bytes from row to row
  uint64_t height = 0;  // rows from plane to plane
  bool host = false;
  ArrayRef array = nullptr;
  uint64_t x_bytes = 0, y = 0, z = 0;  // in the array
};

struct Copy {
  CopyEnd destination, source;
  uint64_t width_bytes = 0, height = 1, depth = 1;
  bool awaited = false;  // the guest's thread waits for nothing else: latency counts
  bool more = false;     // a piece, and others of the same copy follow: nobody waits for this one alone
};

// A copy from the host's memory is one engine's, a copy to it another's; what stays on the device is
// charged to the compute engine.
constexpr Engine copy_engine(bool from_host, bool to_host) {
  if (from_host) return Engine::kCopyIn;
  return to_host ? Engine::kCopyOut : Engine::kCompute;
}
inline Engine engine_of(const Copy& copy) { return copy_engine(copy.source.host, copy.destination.host); }
// The same before the runner's translation.
inline Engine engine_of(const vgpu_copy& copy) {
  return copy_engine(copy.source.kind == VGPU_MEMORY_HOST, copy.destination.kind == VGPU_MEMORY_HOST);
}

// What a launch runs: exactly one of the two is set.
struct Code {
  KernelRef kernel;
  FunctionRef function;
};

struct Launch {
  Code code;
  uint32_t grid[3]{}, block[3]{}, cluster[3]{};
  uint32_t shared_bytes = 0;
  bool cooperative = false;
  int32_t priority = 0;
  // Hints, as vgpu_launch has them; a device may ignore them.
  bool programmatic = false;
  uint32_t preferred_cluster[3]{}, cluster_policy = 0, sync_domain = 0;
  std::optional<int32_t> carveout;
  std::span<const std::byte> parameters;  // packed; copied before the call returns
};

// A graph node's content. Only the member that `type` names is used.
struct NodeContent {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Launch launch;  // parameters point into parameter_bytes
  std::vector<std::byte> parameter_bytes;
  Copy copy;
  vgpu_fill fill{};
  HostCallback host;
  GraphRef child;
  bool moved = false;  // the child itself goes into the node, once; else a copy of it
  EventRef event;
  PoolRef pool;
  uint64_t bytes = 0, address = 0;  // allocation and free nodes
  std::vector<vgpu_memory_op> operations;
  vgpu_conditional_node conditional{};
};

struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  GraphRef graph;
  std::vector<NodeRef> dependencies;
};

class Device : public MovingMemory {
 public:
  virtual void info(vgpu_device_info* info) = 0;
  virtual void memory_info(uint64_t* free_bytes, uint64_t* total_bytes) = 0;

  // Device memory shall lie in this part of the window, not in the first; before any is allocated.
  virtual Status use_part(uint32_t part) {
    return Status::error(ENOTSUP, "this device has no part {} of the address window", part);
  }

  // Kernels will be guarded. From now on all that they are given lies in one area; `memory` is as much of it as there
  // may be. After use_part(), before any is allocated.
  virtual Result<GuardPlace> guard(uint64_t /*memory*/) {
    return Status::error(ENOTSUP, "this device has no guard for kernels");
  }
  // Bytes of the guard's table, while kernels read it. Any thread, one at a time.
  virtual Status guard_write(uint64_t /*at*/, std::span<const std::byte> /*bytes*/) {
    return Status::error(ENOTSUP, "this device has no guard for kernels");
  }

  // Guest pages that were mapped into the runner and those that will be unmapped. A device that copies from and to them
  // itself registers them; one that refuses still takes copies of them, at its own pace.
  // `same_addresses`: kernels use the guest's addresses as they are, so what they may reach is mapped at those.
  // `registers_grants`: host_pin may be given pages that a Xen domain has granted.
  virtual bool same_addresses() const { return false; }
  virtual bool registers_grants() const { return true; }
  virtual CUresult host_pin(void*, uint64_t /*bytes*/, bool /*read_only*/) { return CUDA_SUCCESS; }
  virtual void host_unpin(void*) {}

  // Contexts. A destroyed context's streams, modules and memory go with it.
  virtual CUresult context_create(uint32_t flags, ContextRef* context) = 0;
  virtual CUresult context_destroy(const ContextRef& context) = 0;
  virtual void context_synchronize(const ContextRef& context, Done done) = 0;
  virtual CUresult context_get_limit(const ContextRef& context, CUlimit limit, uint64_t* value) = 0;
  virtual CUresult context_set_limit(const ContextRef& context, CUlimit limit, uint64_t value) = 0;

  // A device without lines of its L2 cache that persist has none to reset.
  virtual CUresult context_reset_l2(const ContextRef&) { return CUDA_SUCCESS; }

  // Code. `image` is private to the caller and may go after the call. `log` tells people why it failed.
  virtual CUresult library_load(std::span<const std::byte> image, LibraryRef* library, std::string* log) = 0;
  virtual CUresult library_unload(const LibraryRef& library) = 0;
  virtual CUresult library_kernel_names(const LibraryRef& library, std::vector<std::string>* names) = 0;
  virtual CUresult library_kernel(const LibraryRef& library, const std::string& name, KernelRef* kernel) = 0;
  virtual CUresult library_global(const ContextRef& context, const LibraryRef& library, const std::string& name,
                                  uint64_t* address, uint64_t* bytes) = 0;
  // Of any code in the context, the variable that holds this address. It may have no name, as a text in a kernel.
  // NOT_FOUND: none does.
  virtual CUresult variable_around(const ContextRef& context, uint64_t address, uint64_t* base, uint64_t* bytes) = 0;
  virtual CUresult library_managed(const LibraryRef& library, std::vector<ManagedVariable>* variables) = 0;
  // `pages`: the program's at that address, which initial values are written to; elsewhere in this process where the
  // variable moves between the two, and then it is not charged here. Held no longer than that takes.
  virtual CUresult library_bind_managed(const LibraryRef& library, const std::string& name, uint64_t address,
                                        const std::shared_ptr<std::byte>& pages) = 0;
  virtual CUresult kernel_function(const ContextRef& context, const KernelRef& kernel, FunctionRef* function) = 0;
  virtual CUresult module_load(const ContextRef& context, std::span<const std::byte> image, ModuleRef* module,
                               std::string* log) = 0;
  virtual CUresult module_unload(const ModuleRef& module) = 0;
  virtual CUresult module_function_names(const ModuleRef& module, std::vector<std::string>* names) = 0;
  virtual CUresult module_function(const ModuleRef& module, const std::string& name, FunctionRef* function) = 0;
  virtual CUresult module_global(const ModuleRef& module, const std::string& name, uint64_t* address,
                                 uint64_t* bytes) = 0;
  // Whether a launch of it would not wait for a compiler. If it would, the compiler has begun: ask again.
  virtual bool is_compiled(const ContextRef&, const Code&) { return true; }
  // Linking, as cuLinkCreate. `log` becomes all that the linker has said so far. Inputs may go after the call.
  virtual CUresult link_create(const ContextRef&, std::span<const LinkOption>, LinkerRef*) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult link_add(const LinkerRef&, CUjitInputType, std::span<const std::byte> /*data*/,
                            const std::string& /*name*/, std::string* /*log*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult link_complete(const LinkerRef&, std::vector<std::byte>* /*image*/, std::string* /*log*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult function_info(const Code& code, FunctionInfo* info) = 0;
  virtual CUresult function_set_attribute(const Code& code, CUfunction_attribute attribute, int32_t value) = 0;
  virtual CUresult occupancy(const Code& code, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) = 0;
  // How many of the launch's clusters fit on the device, and the largest size that could run. No code: of any kernel.
  virtual CUresult occupancy_clusters(const ContextRef&, const Launch&, uint32_t* /*clusters*/, uint32_t* /*largest*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult tensor_map_encode(const vgpu_tensor_shape&, vgpu_tensor_map*) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult tensor_map_move(const vgpu_tensor_map& /*old*/, uint64_t /*address*/, vgpu_tensor_map*) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }

  // Memory. Addresses lie in the device's part of the window.
  virtual CUresult memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) = 0;
  virtual void memory_free(uint64_t address, Done done) = 0;
  // Null: this device cannot give the same addresses again.
  virtual GivesAgain* gives_again() { return nullptr; }
  virtual CUresult managed_add(const ContextRef& context, uint64_t address, uint64_t bytes) = 0;
  virtual void managed_remove(uint64_t address, Done done) = 0;
  // Told when all work of all contexts that was queued before has ended; what is only captured does not count.
  virtual void settle(Done done) = 0;
  virtual CUresult pool_create(const vgpu_pool_props& props, PoolRef* pool) = 0;
  virtual CUresult pool_default(PoolRef* pool) = 0;
  virtual CUresult pool_trim(const PoolRef& pool, uint64_t keep_bytes) = 0;
  virtual CUresult pool_get_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t* value) = 0;
  virtual CUresult pool_set_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t value) = 0;
  virtual CUresult memory_alloc_async(const StreamRef& stream, const PoolRef& pool, uint64_t bytes,
                                      uint64_t* address) = 0;  // pool may be null: the default
  virtual CUresult memory_free_async(const StreamRef& stream, uint64_t address) = 0;

  // Virtual memory management, as cuMemAddressReserve, cuMemCreate and so on. A device without it keeps these. Sizes
  // are multiples of the granularity; memory lives as long as the object or a mapping of it does.
  virtual CUresult memory_granularity(const vgpu_memory_props&, bool /*recommended*/, uint64_t* /*bytes*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult memory_create(const vgpu_memory_props&, uint64_t /*bytes*/, MemoryRef*,
                                 vgpu_memory_props* /*made*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult address_reserve(uint64_t /*bytes*/, uint64_t /*alignment*/, uint64_t* /*address*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // The same where another virtual GPU of the guest process has these addresses: in its part of the window.
  virtual CUresult address_adopt(uint64_t /*address*/, uint64_t /*bytes*/) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult address_free(uint64_t /*address*/, uint64_t /*bytes*/) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult memory_map(uint64_t /*address*/, uint64_t /*bytes*/, uint64_t /*offset*/, const MemoryRef&) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult memory_unmap(uint64_t /*address*/, uint64_t /*bytes*/) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult memory_set_access(uint64_t /*address*/, uint64_t /*bytes*/, uint32_t /*access*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult memory_get_access(uint64_t /*address*/, uint32_t* /*access*/) { return CUDA_ERROR_NOT_SUPPORTED; }

  // For other devices of the same GPU, in other processes: a descriptor of `memory`, or if it is null of what holds the
  // allocation that begins at `address`, `offset` bytes into it. `done` may come later, when work before it has ended.
  using Exported = std::function<void(CUresult, UniqueFd, uint64_t bytes, uint64_t offset)>;
  virtual void memory_export(const MemoryRef&, uint64_t /*address*/, const Exported& done) {
    done(CUDA_ERROR_NOT_SUPPORTED, {}, 0, 0);
  }
  virtual CUresult memory_import(int /*fd*/, uint64_t /*bytes*/, MemoryRef*) { return CUDA_ERROR_NOT_SUPPORTED; }
  // The same for memory of another virtual GPU, which is charged for it and may have it back: then nothing of it stays
  // mapped here, and whatever still uses it faults.
  virtual CUresult memory_borrow(int /*fd*/, uint64_t /*bytes*/, MemoryRef*) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual void memory_revoke(const MemoryRef&) {}
  // An event's token, and a descriptor where the device needs one.
  using EventToken = std::array<uint8_t, 64>;
  virtual CUresult event_export(const EventRef&, EventToken*, UniqueFd*) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult event_import(const ContextRef&, const EventToken&, int /*fd or -1*/, EventRef*) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }

  // Arrays, textures, surfaces. A device without them keeps these. `made` describes the array as it is; `value` is what
  // kernels take. Levels and planes go with what they are of. Destroying an array waits for all work of its context.
  virtual CUresult array_create(const ContextRef&, const vgpu_array& /*asked*/, ArrayRef*, vgpu_array* /*made*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult array_plane(const ArrayRef&, uint32_t /*plane*/, ArrayRef*, vgpu_array* /*made*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual void array_destroy(const ArrayRef&, Done done) { done(CUDA_ERROR_NOT_SUPPORTED); }
  virtual CUresult mipmap_create(const ContextRef&, const vgpu_array&, MipmapRef*) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult mipmap_level(const MipmapRef&, uint32_t /*level*/, ArrayRef*, vgpu_array* /*made*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual void mipmap_destroy(const MipmapRef&, Done done) { done(CUDA_ERROR_NOT_SUPPORTED); }
  // `object`: the array or mipmapped array that the resource names, or null.
  virtual CUresult texture_create(const ContextRef&, const vgpu_texture&, const std::shared_ptr<Object>& /*object*/,
                                  TextureRef*, uint64_t* /*value*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult texture_destroy(const TextureRef&) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult texture_linear_width(uint32_t /*format*/, uint32_t /*channels*/, uint64_t* /*elements*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult surface_create(const ContextRef&, const ArrayRef&, SurfaceRef*, uint64_t* /*value*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult surface_destroy(const SurfaceRef&) { return CUDA_ERROR_NOT_SUPPORTED; }
  // Texture and surface references: variables of a module, by name. What bind gives keeps the binding: it is destroyed
  // after the reference is bound to something else, or with the module. Launches issued before keep what was bound
  // then, if all work of the context has ended.
  virtual CUresult reference_find(const ModuleRef&, const std::string& /*name*/, bool /*surface*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult texture_bind(const ModuleRef&, const std::string& /*name*/, const vgpu_texture&,
                                const std::shared_ptr<Object>& /*object*/, TextureRef*) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult surface_bind(const ModuleRef&, const std::string& /*name*/, const ArrayRef&, SurfaceRef*) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }

  // What is put on streams for this engine between the two is a time slice; `done` is called when all of it is done, or
  // will not be, perhaps from inside the call. One of an engine is open at a time. A device may measure nothing.
  // `on_turn`: others have turns. The time of compute work begins with its own; measuring makes no copy wait for one.
  virtual void time_slice_begin(unsigned /*engine*/, bool /*on_turn*/) {}
  virtual void time_slice_end(unsigned /*engine*/, TimeSliceDone done) { done(0); }
  // Nothing of the open one has begun: its time will not hold how long issuing it took.
  virtual bool time_slice_waits(unsigned /*engine*/) { return true; }
  // The program has waited for the end of all of them. False: it may not have.
  virtual bool time_slices_over(unsigned /*engine*/) { return false; }
  // Keeps the compute engine where the hardware takes it from who has nothing on it. A thread of the device's asks
  // `how` twice a millisecond until it says kNot; then, or on failure, it calls `ended`. False: it cannot.
  virtual bool keep_engine(std::function<Keep()> /*how*/, std::function<void()> /*ended*/) { return false; }
  virtual bool keep_behind() { return false; }  // nothing more comes now: it is to come behind the work. True: later

  // Work on streams. While a stream captures, these add nodes, and call `done`, which may be null, at once.
  virtual CUresult copy(const StreamRef& stream, const Copy& copy, Done done) = 0;
  virtual CUresult fill(const StreamRef& stream, const vgpu_fill& fill, Done done) = 0;
  virtual CUresult launch(const StreamRef& stream, const Launch& launch) = 0;
  virtual CUresult callback(const StreamRef& stream, const HostCallback& callback) = 0;
  virtual CUresult write_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                               uint32_t flags) = 0;
  virtual CUresult wait_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                              uint32_t flags) = 0;

  // Streams and events. The legacy default stream and a thread's default stream are made by the runner's asking.
  virtual CUresult stream_create(const ContextRef& context, uint32_t flags, int32_t priority, StreamRef* stream) = 0;
  // The same on SMs `first` to `first + count - 1` of the device alone.
  virtual CUresult stream_create_part(const ContextRef&, uint32_t /*flags*/, int32_t /*priority*/, uint32_t /*first*/,
                                      uint32_t /*count*/, StreamRef*) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual StreamRef stream_legacy(const ContextRef& context) = 0;
  // One more of the same context, priority and part of the device, in the order of no other; for the runner's own use.
  virtual CUresult stream_beside(const StreamRef&, StreamRef* /*made*/) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult stream_destroy(const StreamRef& stream) = 0;
  virtual CUresult stream_query(const StreamRef& stream) = 0;
  virtual void stream_synchronize(const StreamRef& stream, Done done) = 0;
  // Calls `done` when what is on the stream so far is over. It is no wait, which would make a capture invalid.
  virtual void stream_when_done(const StreamRef& stream, Done done) { stream_synchronize(stream, std::move(done)); }
  virtual CUresult stream_wait_event(const StreamRef& stream, const EventRef& event, uint32_t flags) = 0;
  virtual CUresult event_create(const ContextRef& context, uint32_t flags, EventRef* event) = 0;
  virtual CUresult event_destroy(const EventRef& event) = 0;
  virtual CUresult event_record(const EventRef& event, const StreamRef& stream, uint32_t flags) = 0;
  virtual CUresult event_query(const EventRef& event) = 0;
  virtual void event_synchronize(const EventRef& event, Done done) = 0;
  virtual CUresult event_elapsed(const EventRef& start, const EventRef& end, float* milliseconds) = 0;

  // Graphs.
  virtual CUresult capture_begin(const StreamRef& stream, CUstreamCaptureMode mode, const GraphRef& into,
                                 std::span<const NodeRef> dependencies) = 0;
  virtual CUresult capture_end(const StreamRef& stream, GraphRef* graph) = 0;
  virtual CUresult capture_info(const StreamRef& stream, CaptureInfo* info) = 0;
  virtual CUresult capture_update(const StreamRef& stream, uint32_t flags, std::span<const NodeRef> dependencies) = 0;
  virtual CUresult graph_create(GraphRef* graph) = 0;
  virtual CUresult graph_clone(const GraphRef& graph, GraphRef* clone) = 0;
  virtual CUresult graph_add_node(const GraphRef& graph, std::span<const NodeRef> dependencies,
                                  const NodeContent& content, NodeRef* node, uint64_t* value) = 0;
  // A handle for a conditional node of the graph, and the graphs that such a node has. A device without keeps these.
  virtual CUresult graph_conditional(const ContextRef&, const GraphRef&, uint32_t /*initial*/, uint32_t /*flags*/,
                                     uint64_t* /*handle*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  virtual CUresult node_bodies(const NodeRef&, std::vector<GraphRef>*) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult graph_nodes(const GraphRef& graph, bool roots_only, std::vector<NodeRef>* nodes) = 0;
  virtual CUresult graph_edges(const GraphRef& graph, std::vector<std::pair<NodeRef, NodeRef>>* edges) = 0;
  virtual CUresult graph_change_edges(const GraphRef& graph, bool add,
                                      std::span<const std::pair<NodeRef, NodeRef>> edges) = 0;
  virtual CUresult node_neighbours(const NodeRef& node, bool dependents, std::vector<NodeRef>* nodes) = 0;
  virtual CUresult node_get(const NodeRef& node, NodeContent* content) = 0;
  virtual CUresult node_set(const NodeRef& node, const NodeContent& content) = 0;
  virtual CUresult node_find_in_clone(const NodeRef& node, const GraphRef& clone, NodeRef* found) = 0;
  virtual CUresult node_destroy(const NodeRef& node) = 0;
  virtual CUresult graph_instantiate(const ContextRef& context, const GraphRef& graph, uint64_t flags,
                                     ExecRef* exec) = 0;
  virtual CUresult exec_update(const ExecRef& exec, const GraphRef& graph, CUgraphExecUpdateResult* result,
                               NodeRef* error_node) = 0;
  virtual CUresult exec_node_set(const ExecRef& exec, const NodeRef& node, const NodeContent& content) = 0;
  virtual CUresult exec_node_enable(const ExecRef& exec, const NodeRef& node, bool enabled) = 0;
  virtual CUresult exec_node_enabled(const ExecRef& exec, const NodeRef& node, bool* enabled) = 0;
  virtual CUresult exec_launch(const ExecRef& exec, const StreamRef& stream) = 0;
  // The memory of all graphs' allocation nodes.
  virtual CUresult graph_memory_get(CUgraphMem_attribute, uint64_t* /*value*/) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult graph_memory_reset(CUgraphMem_attribute /*high-water mark*/) { return CUDA_ERROR_NOT_SUPPORTED; }
  virtual CUresult graph_memory_trim() { return CUDA_ERROR_NOT_SUPPORTED; }
};

// The software device: runs PTX on the CPU. `host` must outlive it.
std::unique_ptr<Device> make_soft_device(const DeviceConfig& config, DeviceHost* host);

// The GPU number `index` of the machine, through NVIDIA's driver, with a context made ahead. It needs the window's
// upper half unmapped in this process, and takes the process's descriptors 1 and 2 (kernels print there). `host` must
// outlive it.
Result<std::unique_ptr<Device>> make_cuda_device(const DeviceConfig& config, int index, DeviceHost* host);

// Memory of a shared segment, a multiple of 2 MiB: `write` is what memory_borrow() takes. `read`: the same for those
// who may only read it; empty where the descriptor cannot be restricted, and memory's `read_only` alone holds. `index`:
// of the GPU. ENOMEM: no room; ENODEV.
struct SegmentDescriptors {
  UniqueFd write, read;
};
Result<SegmentDescriptors> make_soft_segment(uint64_t bytes);
Result<SegmentDescriptors> make_cuda_segment(uint64_t bytes, int index);

// Has NVIDIA's driver take another process of this user's off all GPUs, with its contexts and what memory it still has
// there, or bring it back. Its calls to the driver wait meanwhile. Blocks; any thread. ENOTSUP: this driver cannot;
// ENOMEM: no room to return. `prepare` loads the driver ahead.
//
// `moved`: whoever had something on GPU `from` comes back on GPU `to`, which must be of the same kind. Empty: all come
// back to where they were. Otherwise each GPU of the host must be there once on either side, whether the process sees
// it or not (found by experiment: a single pair is CUDA_ERROR_INVALID_VALUE, and CUDA_VISIBLE_DEVICES does not matter).
struct GpuPair {
  std::string from, to;  // "GPU-" and the UUID
};
Status prepare_cuda_checkpoints();
Status checkpoint_cuda_process(int pid, bool off, std::span<const GpuPair> moved);

// What a GPU is, without making a context on it.
struct GpuIdentity {
  std::string name, uuid;
  uint64_t memory_bytes = 0;
  int driver_version = 0;  // as cuDriverGetVersion
  // SMs, and how many make the least group that contexts can be confined to; 0: they cannot be.
  uint32_t sms = 0, sm_step = 0;
};
Result<GpuIdentity> probe_cuda_device(int index);

}  // namespace bandsaw
