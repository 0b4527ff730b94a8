// An NVIDIA GPU as one guest process sees it: bandsaw::Device through NVIDIA's own driver, in this process. Each
// subject of the interface is a file of its own, device_*.cc.
//
// The caller's thread waits for the GPU only as briefly as handing the wait over would take (is_soon_over): longer
// waits, and blocking calls of the driver, go to Waiter, ends of copies are seen by Completions. Error codes are the
// driver's own.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "backend/device/cuda/along.h"
#include "backend/device/cuda/arrays.h"
#include "backend/device/cuda/completions.h"
#include "backend/device/cuda/heap.h"
#include "backend/device/cuda/keep_alive.h"
#include "backend/device/cuda/kernel_output.h"
#include "backend/device/cuda/objects.h"
#include "backend/device/cuda/partition.h"
#include "backend/device/cuda/pinned.h"
#include "backend/device/cuda/pool.h"
#include "backend/device/cuda/reservations.h"
#include "backend/device/cuda/split_copy.h"
#include "backend/device/cuda/stacks.h"
#include "backend/device/cuda/streams.h"
#include "backend/device/cuda/time_slice_meter.h"
#include "backend/device/cuda/waiter.h"
#include "backend/device/gives_again.h"

namespace bandsaw::cuda {

// A node's kernel as the driver takes it: pointers into a launch's parameter bytes.
struct KernelParams {
  CUDA_KERNEL_NODE_PARAMS params{};
  std::vector<void*> pointers;
};

CUDA_MEMCPY3D to_driver(const Copy& copy);
CUDA_MEMSET_NODE_PARAMS to_driver(const vgpu_fill& fill);
// The driver calls it for a host node; `data` is a HostFunction.
void CUDA_CB run_host_function(void* data);

// As make_cuda_segment(). Memory of no process: its descriptor holds it.
Result<SegmentDescriptors> make_segment(const Driver& driver, uint64_t bytes, int index);

class CudaDevice final : public Device, public GivesAgain {
 public:
  static Result<std::unique_ptr<CudaDevice>> make(const DeviceConfig& config, int index, DeviceHost* host);
  ~CudaDevice() override;

  void info(vgpu_device_info* info) override;
  void memory_info(uint64_t* free_bytes, uint64_t* total_bytes) override;

  CUresult context_create(uint32_t flags, ContextRef* context) override;
  CUresult context_destroy(const ContextRef& context) override;
  void context_synchronize(const ContextRef& context, Done done) override;
  CUresult context_get_limit(const ContextRef& context, CUlimit limit, uint64_t* value) override;
  CUresult context_reset_l2(const ContextRef& context) override;
  CUresult context_set_limit(const ContextRef& context, CUlimit limit, uint64_t value) override;

  CUresult library_load(std::span<const std::byte> image, LibraryRef* library, std::string* log) override;
  CUresult library_unload(const LibraryRef& library) override;
  CUresult library_kernel_names(const LibraryRef& library, std::vector<std::string>* names) override;
  CUresult library_kernel(const LibraryRef& library, const std::string& name, KernelRef* kernel) override;
  CUresult library_global(const ContextRef& context, const LibraryRef& library, const std::string& name,
                          uint64_t* address, uint64_t* bytes) override;
  CUresult variable_around(const ContextRef& context, uint64_t address, uint64_t* base, uint64_t* bytes) override;
  CUresult library_managed(const LibraryRef& library, std::vector<ManagedVariable>* variables) override;
  CUresult library_bind_managed(const LibraryRef& library, const std::string& name, uint64_t address,
                                const std::shared_ptr<std::byte>& pages) override;
  CUresult kernel_function(const ContextRef& context, const KernelRef& kernel, FunctionRef* function) override;
  CUresult module_load(const ContextRef& context, std::span<const std::byte> image, ModuleRef* module,
                       std::string* log) override;
  CUresult module_unload(const ModuleRef& module) override;
  CUresult module_function_names(const ModuleRef& module, std::vector<std::string>* names) override;
  CUresult module_function(const ModuleRef& module, const std::string& name, FunctionRef* function) override;
  CUresult module_global(const ModuleRef& module, const std::string& name, uint64_t* address, uint64_t* bytes) override;
  CUresult link_create(const ContextRef& context, std::span<const LinkOption> options, LinkerRef* linker) override;
  CUresult link_add(const LinkerRef& linker, CUjitInputType type, std::span<const std::byte> data,
                    const std::string& name, std::string* log) override;
  CUresult link_complete(const LinkerRef& linker, std::vector<std::byte>* image, std::string* log) override;
  CUresult function_info(const Code& code, FunctionInfo* info) override;
  CUresult function_set_attribute(const Code& code, CUfunction_attribute attribute, int32_t value) override;
  CUresult occupancy(const Code& code, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) override;
  CUresult occupancy_clusters(const ContextRef& context, const Launch& launch, uint32_t* clusters,
                              uint32_t* largest) override;
  CUresult tensor_map_encode(const vgpu_tensor_shape& shape, vgpu_tensor_map* map) override;
  CUresult tensor_map_move(const vgpu_tensor_map& old, uint64_t address, vgpu_tensor_map* map) override;

  CUresult memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) override;
  void memory_free(uint64_t address, Done done) override;
  CUresult chunks_move(const swap::Moves& moves) override;
  CUresult chunks_reach(const std::vector<uint64_t>& chunks) override;
  void chunks_prepare(uint64_t chunk_bytes, uint64_t bytes) override;
  CUresult memory_leave() override;
  CUresult memory_return() override;
  std::optional<std::vector<AwayMemory>> memory_away() override;
  // device_again.cc, graph_again.cc
  GivesAgain* gives_again() override { return config_.replaceable ? this : nullptr; }
  bool has_memory(uint64_t address) override;
  bool reaches(uint64_t address, uint64_t bytes) override;
  std::string not_given() override;
  std::string reserved(std::vector<ReservedAgain>* all) override;
  CUresult reserve_again(uint64_t address, uint64_t bytes) override {
    return reservations_->reserve_again(address, bytes);
  }
  uint64_t memory_key(const MemoryRef& memory, uint64_t* bytes) override;
  CUresult memory_make(uint64_t key, uint64_t bytes, MemoryRef* memory) override;
  std::string take_along(std::span<CodeAgain> all) override;
  Status expect_along(std::span<const CodeAgain> all) override;
  HeapAgain heap_of(const ContextRef&) override { return {}; }
  CUresult heap_make(const ContextRef&, const HeapAgain&) override { return CUDA_ERROR_INVALID_VALUE; }
  std::optional<int64_t> event_age(const EventRef& event) override;
  CUresult event_set_age(const EventRef& event, int64_t nanoseconds) override;
  SharedByGraphs shared_by_graphs() override { return {}; }
  CUresult make_shared_by_graphs(const SharedByGraphs& shared) override;
  void end_shared_by_graphs() override {}
  std::vector<uint64_t> conditions_of(const GraphRef&) override { return {}; }
  CUresult set_conditions(const GraphRef&, std::span<const uint64_t> handles) override {
    return handles.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  NodeRef original_of(const NodeRef& node) override;
  void set_original(const NodeRef& node, const NodeRef& original) override;
  void exec_steps(const ExecRef& exec, std::vector<ExecStep>* steps, uint64_t* flags) override;
  CUresult exec_make(const ContextRef& context, uint64_t flags, std::span<const ExecStep> steps,
                     ExecRef* exec) override;
  CUresult managed_add(const ContextRef& context, uint64_t address, uint64_t bytes) override;
  void managed_remove(uint64_t address, Done done) override;
  void settle(Done done) override;
  CUresult pool_create(const vgpu_pool_props& props, PoolRef* pool) override;
  CUresult pool_default(PoolRef* pool) override;
  CUresult pool_trim(const PoolRef& pool, uint64_t keep_bytes) override;
  CUresult pool_get_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t* value) override;
  CUresult pool_set_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t value) override;
  CUresult memory_alloc_async(const StreamRef& stream, const PoolRef& pool, uint64_t bytes, uint64_t* address) override;
  CUresult memory_free_async(const StreamRef& stream, uint64_t address) override;

  CUresult memory_granularity(const vgpu_memory_props& props, bool recommended, uint64_t* bytes) override;
  CUresult memory_create(const vgpu_memory_props& props, uint64_t bytes, MemoryRef* memory,
                         vgpu_memory_props* made) override;
  CUresult address_reserve(uint64_t bytes, uint64_t alignment, uint64_t* address) override;
  CUresult address_adopt(uint64_t address, uint64_t bytes) override;
  CUresult address_free(uint64_t address, uint64_t bytes) override;
  CUresult memory_map(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) override;
  CUresult memory_unmap(uint64_t address, uint64_t bytes) override;
  CUresult memory_set_access(uint64_t address, uint64_t bytes, uint32_t access) override;
  CUresult memory_get_access(uint64_t address, uint32_t* access) override;

  void memory_export(const MemoryRef& memory, uint64_t address, const Exported& done) override;
  CUresult memory_import(int fd, uint64_t bytes, MemoryRef* memory) override;
  CUresult memory_borrow(int fd, uint64_t bytes, MemoryRef* memory) override;
  void memory_revoke(const MemoryRef& memory) override;
  CUresult event_export(const EventRef& event, EventToken* token, UniqueFd* fd) override;
  CUresult event_import(const ContextRef& context, const EventToken& token, int fd, EventRef* event) override;

  CUresult array_create(const ContextRef& context, const vgpu_array& asked, ArrayRef* array, vgpu_array* made) override;
  CUresult array_plane(const ArrayRef& array, uint32_t plane, ArrayRef* part, vgpu_array* made) override;
  void array_destroy(const ArrayRef& array, Done done) override;
  CUresult mipmap_create(const ContextRef& context, const vgpu_array& asked, MipmapRef* mipmap) override;
  CUresult mipmap_level(const MipmapRef& mipmap, uint32_t level, ArrayRef* array, vgpu_array* made) override;
  void mipmap_destroy(const MipmapRef& mipmap, Done done) override;
  CUresult texture_create(const ContextRef& context, const vgpu_texture& asked, const std::shared_ptr<Object>& object,
                          TextureRef* texture, uint64_t* value) override;
  CUresult texture_destroy(const TextureRef& texture) override;
  CUresult texture_linear_width(uint32_t format, uint32_t channels, uint64_t* elements) override;
  CUresult surface_create(const ContextRef& context, const ArrayRef& array, SurfaceRef* surface,
                          uint64_t* value) override;
  CUresult surface_destroy(const SurfaceRef& surface) override;
  CUresult reference_find(const ModuleRef& module, const std::string& name, bool surface) override;
  CUresult texture_bind(const ModuleRef& module, const std::string& name, const vgpu_texture& asked,
                        const std::shared_ptr<Object>& object, TextureRef* texture) override;
  CUresult surface_bind(const ModuleRef& module, const std::string& name, const ArrayRef& array,
                        SurfaceRef* surface) override;

  bool keep_engine(std::function<Keep()> how, std::function<void()> ended) override;
  bool keep_behind() override;
  // Code of the device's own would move what a program loads later, and another runner would have to load it then too.
  void time_slice_begin(unsigned engine, bool on_turn) override {
    time_slices_->begin(engine, on_turn && !config_.replaceable);
  }
  bool time_slice_waits(unsigned engine) override { return time_slices_->waits(engine); }
  bool time_slices_over(unsigned engine) override { return time_slices_->over(engine); }
  void time_slice_end(unsigned engine, TimeSliceDone done) override { time_slices_->end(engine, std::move(done)); }

  CUresult copy(const StreamRef& stream, const Copy& copy, Done done) override;
  CUresult fill(const StreamRef& stream, const vgpu_fill& fill, Done done) override;
  CUresult launch(const StreamRef& stream, const Launch& launch) override;
  CUresult callback(const StreamRef& stream, const HostCallback& callback) override;
  CUresult write_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                       uint32_t flags) override;
  CUresult wait_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                      uint32_t flags) override;

  CUresult stream_create(const ContextRef& context, uint32_t flags, int32_t priority, StreamRef* stream) override;
  CUresult stream_create_part(const ContextRef& context, uint32_t flags, int32_t priority, uint32_t first,
                              uint32_t count, StreamRef* stream) override;
  StreamRef stream_legacy(const ContextRef& context) override;
  CUresult stream_beside(const StreamRef& stream, StreamRef* made) override;
  CUresult stream_destroy(const StreamRef& stream) override;
  CUresult stream_query(const StreamRef& stream) override;
  void stream_synchronize(const StreamRef& stream, Done done) override;
  void stream_when_done(const StreamRef& stream, Done done) override;
  CUresult stream_wait_event(const StreamRef& stream, const EventRef& event, uint32_t flags) override;
  CUresult event_create(const ContextRef& context, uint32_t flags, EventRef* event) override;
  CUresult event_destroy(const EventRef& event) override;
  CUresult event_record(const EventRef& event, const StreamRef& stream, uint32_t flags) override;
  CUresult event_query(const EventRef& event) override;
  void event_synchronize(const EventRef& event, Done done) override;
  CUresult event_elapsed(const EventRef& start, const EventRef& end, float* milliseconds) override;

  CUresult capture_begin(const StreamRef& stream, CUstreamCaptureMode mode, const GraphRef& into,
                         std::span<const NodeRef> dependencies) override;
  CUresult capture_end(const StreamRef& stream, GraphRef* graph) override;
  CUresult capture_info(const StreamRef& stream, CaptureInfo* info) override;
  CUresult capture_update(const StreamRef& stream, uint32_t flags, std::span<const NodeRef> dependencies) override;
  CUresult graph_create(GraphRef* graph) override;
  CUresult graph_clone(const GraphRef& graph, GraphRef* clone) override;
  CUresult graph_add_node(const GraphRef& graph, std::span<const NodeRef> dependencies, const NodeContent& content,
                          NodeRef* node, uint64_t* value) override;
  CUresult graph_conditional(const ContextRef& context, const GraphRef& graph, uint32_t initial, uint32_t flags,
                             uint64_t* handle) override;
  CUresult node_bodies(const NodeRef& node, std::vector<GraphRef>* bodies) override;
  CUresult add_conditional(const CudaGraphRef& graph, const std::vector<CUgraphNode>& after, const NodeContent& content,
                           NodeRef* node);
  CUresult graph_nodes(const GraphRef& graph, bool roots_only, std::vector<NodeRef>* nodes) override;
  CUresult graph_edges(const GraphRef& graph, std::vector<std::pair<NodeRef, NodeRef>>* edges) override;
  CUresult graph_change_edges(const GraphRef& graph, bool add,
                              std::span<const std::pair<NodeRef, NodeRef>> edges) override;
  CUresult node_neighbours(const NodeRef& node, bool dependents, std::vector<NodeRef>* nodes) override;
  CUresult node_get(const NodeRef& node, NodeContent* content) override;
  CUresult node_set(const NodeRef& node, const NodeContent& content) override;
  CUresult node_find_in_clone(const NodeRef& node, const GraphRef& clone, NodeRef* found) override;
  CUresult node_destroy(const NodeRef& node) override;
  CUresult graph_instantiate(const ContextRef& context, const GraphRef& graph, uint64_t flags, ExecRef* exec) override;
  CUresult exec_update(const ExecRef& exec, const GraphRef& graph, CUgraphExecUpdateResult* result,
                       NodeRef* error_node) override;
  CUresult exec_node_set(const ExecRef& exec, const NodeRef& node, const NodeContent& content) override;
  CUresult exec_node_enable(const ExecRef& exec, const NodeRef& node, bool enabled) override;
  CUresult exec_node_enabled(const ExecRef& exec, const NodeRef& node, bool* enabled) override;
  CUresult exec_launch(const ExecRef& exec, const StreamRef& stream) override;
  CUresult graph_memory_get(CUgraphMem_attribute attribute, uint64_t* value) override;
  CUresult graph_memory_reset(CUgraphMem_attribute attribute) override;
  CUresult graph_memory_trim() override;

  Status use_part(uint32_t part) override;
  Result<GuardPlace> guard(uint64_t memory) override;
  Status guard_write(uint64_t at, std::span<const std::byte> bytes) override;
  bool same_addresses() const override { return true; }
  bool registers_grants() const override { return !is_pv_domain_; }
  CUresult host_pin(void* pointer, uint64_t bytes, bool read_only) override;
  void host_unpin(void* pointer) override;

 private:
  enum class Primary { kFresh, kTaken, kEnded };  // the guest does not have it yet, has it, has ended it

  // What one context takes, as measured on an H200 with driver 580: with local memory of kLocalBytes for each thread.
  // Asking the driver how much is free, before and after, would count what other processes take meanwhile. Another
  // context over the same primary one takes 4 to 10 MiB.
  static constexpr uint64_t kContextBytes = 520ull << 20, kGreenContextBytes = 16ull << 20;
  static constexpr uint64_t kLocalBytes = 1024;

  CudaDevice(const DeviceConfig& config, DriverRef driver, DeviceHost* host, CUdevice device);
  Status warm_up();
  Status reserve_part(uint32_t part, const ptx::GuardArea* area = nullptr);

  // Tells the host of a sticky error; hands the code on.
  CUresult check(CUresult result);
  // The stream's or the given context made current in this thread; without one the process's own.
  CUresult enter(const CudaContextRef& context);
  CUresult enter(const StreamRef& stream) {  // work for it may follow
    CudaContext& context = *as(stream).context;
    context.work.add();
    as(stream).work.add();
    const bool is_legacy = as(stream).handle == CU_STREAM_LEGACY;
    (as(stream).apart ? context.apart : is_legacy ? context.legacy : context.blocking).add();
    const CUresult result = enter(as(stream).context);
    if (result == CUDA_SUCCESS && !is_legacy && !as(stream).apart) legacy_ends(as(stream).context);
    return result == CUDA_SUCCESS && as(stream).context->order ? keep_order(as(stream)) : result;
  }
  // Of the streams of a green context. It is current.
  CUresult keep_order(const CudaStream& stream);
  CUresult enter(const Code& code);
  CUresult enter() { return enter(CudaContextRef()); }
  CudaContextRef own_context();
  CUresult retain_primary();
  CUresult renew_primary();
  CUresult renew_green();
  CUresult release_primary();
  bool is_capturing(CUstream stream, CUresult* error);
  // Runs a blocking driver call of the context on a waiter, reads what kernels printed, and then tells `done`.
  void wait(const CudaContextRef& context, std::function<CUresult()> call, Done done);
  // One that may last.
  AdaptiveWait begin_wait();
  // For a wait that may be over at once, first on the caller's thread, as long as nobody needs that and it takes no
  // longer than handing it to another one would. A call whose query says that it is over does not block.
  bool is_soon_over(const CudaContextRef& context, const std::function<CUresult()>& query,
                    const std::function<CUresult()>& call, const Done& done);
  // A kernel or a graph is on the stream; or something follows there that leaves the compute engine to others.
  void work_goes_on(const StreamRef& stream);
  void work_ends(const StreamRef& stream);
  // As work_ends for the legacy stream, before something is put on a stream that it waits for. It is current.
  void legacy_ends(const CudaContextRef& context) {
    time_slices_->leave_legacy(context);
    if (keep_alive_->has_work() && !streams_->some_capture()) keep_alive_->legacy_ends();
  }
  void wait_streams_soon(const CudaContextRef& context, std::vector<CUstream> streams, std::function<CUresult()> call,
                         Done done);
  using Unseen = std::pair<std::shared_ptr<CudaStream>, uint64_t>;
  std::vector<Unseen> unseen_streams(const CudaContextRef& context);
  void nothing_to_wait_for(const CudaContextRef& context, const Done& done);
  void over(CUresult result, const std::function<CUresult()>& call, const Done& done);
  // From now on the engine is not kept.
  void keep_no_more();
  // Has the driver write what kernels printed and pools give back what they may; all is done.
  CUresult flush();
  // Waits for all work of the context, and then calls `then`.
  void when_idle(const CudaContextRef& context, std::function<CUresult()> then, Done done);
  // Tells `done` when what was put on the stream so far is done; on failure it is not called.
  CUresult when_done(const StreamRef& stream, Done done);
  // Work for the engine is about to be put on the stream.
  void measure(unsigned engine, const StreamRef& stream, uint64_t bytes, bool is_plain_copy = false);
  void finished(CUresult result, const Done& done);
  void tell_output();

  // device_code.cc
  template <typename GetInfo>
  Parameters parameters(GetInfo get_info);
  CUfunction code_handle(const Code& code);
  const Parameters& code_parameters(const Code& code);
  FunctionRef make_function(CUfunction handle, const CudaContextRef& context, std::shared_ptr<Object> owner);
  Code code_of(CUfunction function, CUkernel kernel);
  void remember(void* handle, const std::shared_ptr<Object>& object);

  // device_copy.cc
  bool is_there(uint64_t address, uint64_t bytes) const;
  CUresult start_copy(CUstream stream, const Copy& copy);
  CUresult copy_inline(const StreamRef& stream, const Copy& copy, const Done& done);
  CUresult copy_awaited(const StreamRef& stream, const Copy& copy, bool to_reply, Done done);
  CUresult copy_unregistered(const StreamRef& stream, const Copy& copy);
  CUresult copy_blocking(const StreamRef& stream, const Copy& copy, Done done);
  Copy copy_of(const CUDA_MEMCPY3D& box);
  CUresult start_fill(CUstream stream, const vgpu_fill& fill);

  // device_exchange.cc
  CUresult import_charged(int fd, uint64_t bytes, Charge charge, MemoryRef* memory);

  // device_vmm.cc
  CUmemAllocationProp memory_prop(const vgpu_memory_props& props) const;

  // device_array.cc
  CUresult enter_array(const CudaArrayRef& array, ArrayRef* out, vgpu_array* made);
  ArrayRef known_array(CUarray handle);

  // device_memory.cc
  CUresult free_pooled(uint64_t address, CUstream stream);
  void settle_pools();
  void trim_pools();
  void make_room();
  // Tries again if memory is missing, after make_room(). Without pool_mutex_.
  template <typename Call>
  CUresult with_room(Call call) {
    const CUresult result = call();
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    make_room();
    return call();
  }
  CUresult take_share(uint64_t bytes, Charge* charge);  // CUDA_ERROR_OUT_OF_MEMORY: over the share
  CUresult take_local(uint64_t thread_bytes);
  uint64_t resident_threads() const;

  CUresult guarded_alloc(const StreamRef& stream, uint64_t bytes, uint64_t* address);
  // device_exec.cc
  CUresult map_graph(CudaExec& exec, CUstream stream);
  CUresult set_in_exec(const ExecRef& exec, const NodeRef& node, const NodeContent& content);
  void measure_graph(const Exec& exec, const StreamRef& stream);

  // device_capture.cc
  void keep_for_capture(CUstream stream, std::shared_ptr<HostFunction> function);

  // device_again.cc, graph_again.cc
  void is_only_here(const std::shared_ptr<Object>& object, const char* words);
  void give_key(const CudaMemoryRef& memory);
  CUresult find_variable(const Object& code, const std::string& name, uint64_t* address, uint64_t* bytes);
  void found_variable(const std::shared_ptr<Object>& code, const std::string& name, uint64_t address);
  std::string list_code(CodeAgain* of);
  void fill_along(std::span<const CodeAgain> all);
  bool find_copy(const NodeRef& node, const GraphRef& clone, NodeRef* found);
  void keep_copy(const GraphRef& graph, const ExecRef& exec);
  void lose_copy(const ExecRef& exec, const char* words);
  NodeRef twin_of(const ExecRef& exec, const NodeRef& node);
  void copy_changed(const ExecRef& exec, const NodeRef& node, const NodeContent& content);
  void copy_enabled(const ExecRef& exec, const NodeRef& node, bool enabled);
  CUresult add_steps(const GraphRef& graph, CudaExec* exec, std::optional<uint32_t> before, std::vector<uint32_t>* ends,
                     std::vector<ExecStep>* steps);
  CUresult add_step(const NodeRef& node, CudaExec* exec, bool outer, std::vector<uint32_t> after, uint32_t* last,
                    std::vector<ExecStep>* steps);
  GraphRef graph_with(std::span<const ExecStep> steps);
  CUresult make_graph(std::span<const ExecStep> steps, GraphRef* graph, std::vector<NodeRef>* nodes);

  // device_graph.cc, device_node.cc
  CudaGraphRef wrap_graph(CUgraph graph, bool owned);
  CudaGraphRef wrap_inner(const CudaGraphRef& outer, CUgraph graph);
  void forget_inner(const CudaNode& node);
  NodeRef wrap_node(const CudaGraphRef& graph, CUgraphNode node);
  CUresult wrap_nodes(const CudaGraphRef& graph, const std::vector<CUgraphNode>& handles, std::vector<NodeRef>* nodes);
  CUresult kernel_params(const Launch& launch, KernelParams* out);
  CUresult set_kernel_attributes(CUgraphNode node, const Launch& launch);
  static Launch launch_of(const NodeContent& content);
  CUresult add_content(CUgraph graph, const std::vector<CUgraphNode>& after, const NodeContent& content,
                       HostFunction* host, CUgraphNode* node, uint64_t* value);
  CUresult add_kernel(CUgraph graph, const std::vector<CUgraphNode>& after, const Launch& launch, CUgraphNode* node);
  CUresult get_kernel(CUgraphNode node, NodeContent* content);
  CUresult get_host(CudaNode& node, NodeContent* content);
  CUresult get_child(CudaNode& node, NodeContent* content);
  void took_child(const CudaGraphRef& graph, CudaNode& node, const NodeContent& content);
  CUresult get_allocation(CudaNode& node, CUgraphNodeType type, NodeContent* content);
  CUresult get_content(CudaNode& node, CUgraphNodeType type, NodeContent* content);

  const DeviceConfig config_;
  const bool is_pv_domain_ = is_pv_domain();
  const DriverRef driver_;
  DeviceHost* const host_;
  const CUdevice device_;
  std::unique_ptr<Partition> partition_;  // null: contexts have all SMs
  CudaContextRef primary_;  // retained while this lives, so that the first context of the guest is there at once
  Primary primary_state_ = Primary::kFresh;  // guarded by contexts_mutex_
  std::mutex contexts_mutex_;                // guards primary_ after it was made, too
  std::atomic<bool> may_keep_{true};         // the engine: not with other contexts, nor with cooperative kernels
  std::unique_ptr<Heap> heap_;
  uint32_t part_ = 0;                 // of the window
  std::atomic<bool> guarded_{false};  // kernels are, from before the first is loaded
  uint64_t guard_table_ = 0;          // where they look
  std::byte* guard_slot_ = nullptr;   // where they report
  std::unique_ptr<Reservations> reservations_;
  Stacks stacks_;
  std::unique_ptr<Pinned> pinned_;
  std::unique_ptr<SplitCopy> split_;
  KernelOutput output_;
  std::atomic<bool> may_print_{false};  // some code image that was loaded may
  PoolRef default_pool_;

  std::mutex pool_mutex_;
  std::vector<CudaPoolRef> pools_;                         // guarded by pool_mutex_: with the default one
  std::unordered_map<uint64_t, CudaPoolRef> pool_memory_;  // guarded by pool_mutex_: by address
  std::atomic<bool> pools_hold_{false};                    // some pool may have memory
  const std::unique_ptr<GraphMemory> graph_memory_;
  // Green contexts of the program's own, by their SMs.
  struct Part {
    std::unique_ptr<Partition> partition;
    CudaContextRef context;
  };
  CUresult part_of(uint32_t first, uint32_t count, CudaContextRef* part);
  std::mutex parts_mutex_;
  std::map<std::pair<uint32_t, uint32_t>, Part> parts_;  // guarded by parts_mutex_
  std::atomic<bool> graphs_allocate_{false};             // some graph has had an allocation node
  std::atomic<bool> graph_conditions_{false};            // some graph has had a conditional node
  std::atomic<bool> graph_records_{false};               // some graph has had a node that records an event
  static constexpr size_t kVariablesLogged = 32;
  std::atomic<size_t> misplaced_{0};  // variables that were asked for again and lay elsewhere
  std::mutex globals_mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<Object>> globals_;  // guarded by globals_mutex_: code, by variables
  std::mutex only_here_mutex_;
  std::vector<std::pair<std::weak_ptr<Object>, const char*>> only_here_;  // guarded by only_here_mutex_
  size_t only_here_most_ = 64;                                            // guarded by only_here_mutex_
  std::mutex created_mutex_;
  std::vector<std::weak_ptr<CudaMemory>> created_;           // guarded by created_mutex_
  uint64_t next_key_ = Along::kVariables + Along::kKeyStep;  // guarded by created_mutex_
  std::unique_ptr<Along> along_;                             // at a standstill only; null: nothing goes along
  std::mutex managed_mutex_;
  std::unordered_map<uint64_t, Charge> managed_;  // guarded by managed_mutex_: by address
  std::mutex local_mutex_;
  Charge local_charge_;  // guarded by local_mutex_: local memory beyond what contexts begin with
  std::mutex arrays_mutex_;
  std::unordered_map<CUarray, std::weak_ptr<CudaArray>> arrays_;  // guarded by arrays_mutex_
  size_t arrays_most_ = 64;                                       // guarded by arrays_mutex_: then it is swept
  std::mutex codes_mutex_;
  std::unordered_map<void*, std::weak_ptr<Object>> codes_;  // guarded by codes_mutex_
  std::mutex graphs_mutex_;
  std::unordered_map<CUgraph, std::weak_ptr<CudaGraph>> graphs_;  // guarded by graphs_mutex_
  std::set<CudaGraphRef> captures_;                               // guarded by graphs_mutex_: under way

  // Last members: their threads use everything above.
  std::unique_ptr<TimeSliceMeter> time_slices_;  // outlives what completions_ still waits for
  std::unique_ptr<Completions> completions_;
  std::unique_ptr<Streams> streams_;
  std::unique_ptr<KeepAlive> keep_alive_;
  WaitLengths wait_lengths_;
  Waiter waiter_;
};

}  // namespace bandsaw::cuda
