// The software device: bandsaw::Device on this process's own threads and memory. Each subject of the interface is a
// file of its own, device_*.cc.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device/device.h"
#include "backend/device/gives_again.h"
#include "backend/device/soft/child_work.h"
#include "backend/device/soft/context.h"
#include "backend/device/soft/executor.h"
#include "backend/device/soft/graph.h"
#include "backend/device/soft/memory_table.h"
#include "backend/device/soft/module.h"
#include "backend/device/soft/ops.h"
#include "backend/device/soft/pool.h"
#include "backend/device/soft/recorder.h"
#include "backend/device/soft/scheduler.h"
#include "backend/device/soft/shared_memory.h"
#include "backend/device/soft/tensor_map.h"

namespace bandsaw::soft {

class ArrayMemory;

class SoftDevice final : public Device, public GivesAgain {
 public:
  SoftDevice(const DeviceConfig& config, DeviceHost* host);
  ~SoftDevice() override;

  Status use_part(uint32_t part) override;
  Result<GuardPlace> guard(uint64_t memory) override;
  Status guard_write(uint64_t at, std::span<const std::byte> bytes) override;
  void info(vgpu_device_info* info) override;
  void memory_info(uint64_t* free_bytes, uint64_t* total_bytes) override;

  CUresult context_create(uint32_t flags, ContextRef* context) override;
  CUresult context_destroy(const ContextRef& context) override;
  void context_synchronize(const ContextRef& context, Done done) override;
  CUresult context_get_limit(const ContextRef& context, CUlimit limit, uint64_t* value) override;
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
  bool is_compiled(const ContextRef& context, const Code& code) override;
  CUresult link_create(const ContextRef& context, std::span<const LinkOption> options, LinkerRef* linker) override;
  CUresult link_add(const LinkerRef& linker, CUjitInputType type, std::span<const std::byte> data,
                    const std::string& name, std::string* log) override;
  CUresult link_complete(const LinkerRef& linker, std::vector<std::byte>* image, std::string* log) override;
  CUresult function_info(const Code& code, FunctionInfo* info) override;
  CUresult function_set_attribute(const Code& code, CUfunction_attribute attribute, int32_t value) override;
  CUresult occupancy(const Code& code, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) override;
  CUresult tensor_map_encode(const vgpu_tensor_shape& shape, vgpu_tensor_map* map) override {
    return encode_tensor_map(shape, map);
  }
  CUresult tensor_map_move(const vgpu_tensor_map& old, uint64_t address, vgpu_tensor_map* map) override {
    return move_tensor_map(old, address, map);
  }
  CUresult occupancy_clusters(const ContextRef& context, const Launch& launch, uint32_t* clusters,
                              uint32_t* largest) override;

  CUresult memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) override;
  void memory_free(uint64_t address, Done done) override;
  CUresult memory_leave() override { return memory_->leave(); }
  CUresult memory_return() override { return memory_->come_back(); }
  std::optional<std::vector<AwayMemory>> memory_away() override { return memory_->away(); }
  GivesAgain* gives_again() override { return this; }
  bool has_memory(uint64_t address) override { return memory_->is_given(address); }
  bool reaches(uint64_t address, uint64_t bytes) override {
    return memory_->accessible(address, bytes) || reservations_.covers(address, bytes);
  }
  std::string not_given() override;
  std::string reserved(std::vector<ReservedAgain>* all) override;
  CUresult reserve_again(uint64_t address, uint64_t bytes) override {
    return reservations_.reserve_again(address, bytes);
  }
  uint64_t memory_key(const MemoryRef& memory, uint64_t* bytes) override;
  CUresult memory_make(uint64_t key, uint64_t bytes, MemoryRef* memory) override;
  HeapAgain heap_of(const ContextRef& context) override { return as(context)->heap.state(); }
  CUresult heap_make(const ContextRef& context, const HeapAgain& heap) override {
    return as(context)->heap.make_again(heap);
  }
  std::optional<int64_t> event_age(const EventRef& event) override;
  CUresult event_set_age(const EventRef& event, int64_t nanoseconds) override;
  SharedByGraphs shared_by_graphs() override;
  CUresult make_shared_by_graphs(const SharedByGraphs& shared) override;
  void end_shared_by_graphs() override;
  std::vector<uint64_t> conditions_of(const GraphRef& graph) override;
  CUresult set_conditions(const GraphRef& graph, std::span<const uint64_t> handles) override;
  NodeRef original_of(const NodeRef& node) override;
  void set_original(const NodeRef& node, const NodeRef& original) override;
  void exec_steps(const ExecRef& exec, std::vector<ExecStep>* steps, uint64_t* flags) override;
  CUresult exec_make(const ContextRef& context, uint64_t flags, std::span<const ExecStep> steps,
                     ExecRef* exec) override;
  CUresult chunks_move(const swap::Moves& moves) override { return memory_->move_chunks(moves); }
  CUresult chunks_reach(const std::vector<uint64_t>& chunks) override { return memory_->reach_chunks(chunks); }
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

  void time_slice_begin(unsigned engine, bool) override { meters_.time_slice_begin(engine); }
  void time_slice_end(unsigned engine, TimeSliceDone done) override { meters_.time_slice_end(engine, std::move(done)); }

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

  // For kernels that launch kernels (child_work.h); any thread.
  const std::shared_ptr<Memory>& memory() const { return memory_; }
  // Whether such a launch could be. If it can, its code is compiled from now on.
  CUresult check_child(const Launch& launch);
  // What a kernel sets; any number may come.
  void set_condition(uint64_t handle, uint32_t value);
  // Runs one body of a conditional node; `done` is called when it has ended, if this succeeds.
  CUresult run_body(const SoftContextRef& context, int priority, const ExecBody& body, Done done);
  // Runs what a grid that has ended has queued; `done` is called when all of that has ended. `slice`: what it is part
  // of. `parent` lives until then.
  void run_children(KernelOp& parent, ChildWork& work, const EngineWork& slice, Done done);

 private:
  using Ops = std::vector<OpRef>;

  // device_stream.cc. With the scheduler's mutex held:
  void follow(SoftStream& stream, Ops* after);  // what new work of the stream must wait for
  void follow_context(SoftContext& context, Ops* after);
  // A capture that work on this stream would break or belong to; see device_capture.cc.
  CUresult check_capture(SoftStream& stream);
  // Puts an operation at the stream's end. Without the mutex.
  CUresult transfer(const StreamRef& stream, const NodeContent& content, Done done);
  CUresult enqueue(SoftStream& stream, const OpRef& op);
  // Calls `done` when everything in `after` has ended. Without the mutex.
  void when_done(const SoftContextRef& context, const Ops& after, Done done);
  // With the mutex held.
  static void note_record(SoftEvent& event, RecordOp& op);
  static OpRef awaited_record(const SoftContextRef& context, const SoftEvent& event);
  bool capturing(SoftStream& stream);
  CUresult refuse_in_capture(SoftStream& stream);
  static CUresult refuse_captured(const SoftEvent& event);

  // The operation for a node's content, checked as CUDA checks the call. device_launch.cc, device_memory.cc.
  CUresult make_op(const SoftContextRef& context, int priority, const NodeContent& content, OpRef* op);
  // `sms`: that it may run on; 0: all.
  CUresult make_launch(const SoftContextRef& context, int priority, const Launch& launch, OpRef* op, uint32_t sms = 0);
  CUresult plan_launch(const SoftContextRef& context, const Launch& launch, LaunchPlan* plan);
  CUresult make_child(const KernelOp& parent, const ChildItem& item, bool tail, const EngineWork& slice, OpRef* op);
  CUresult check_shape(const Launch& launch, const CodeView& code);
  CUresult reference_cell(const ModuleRef& module, const std::string& name, bool surface, uint64_t** cell);
  CUresult room_for_clusters(const Launch& launch, const KernelCode& code, const KernelSettings& settings,
                             uint32_t* clusters, uint32_t* largest) const;
  static CUresult find_cluster(const Launch& launch, const CodeView& code, uint32_t (&cluster)[3]);
  CUresult make_copy(const SoftContextRef& context, int priority, const Copy& copy, OpRef* op);
  CUresult make_fill(const SoftContextRef& context, int priority, const vgpu_fill& fill, OpRef* op);
  CUresult resolve(uint64_t address, uint64_t bytes, void** pointer);
  // device_array.cc. The states are checked; `why` tells people about a refusal.
  CUresult array_memory(const vgpu_array& asked, std::shared_ptr<ArrayMemory>* memory);
  CUresult linear_state(const vgpu_resource& resource, TextureState* state, std::string* why);
  CUresult array_state(const vgpu_texture& asked, const std::shared_ptr<Object>& object, TextureState* state,
                       std::string* why);
  CUresult enter_texture(SoftContext& context, const TextureState& state, uint64_t* handle);
  CUresult value_steps(const NodeContent& content, std::vector<ValueStep>* steps);
  CUresult value_word(uint64_t address, uint32_t bytes, ValueWord* word);
  std::shared_ptr<const BlockShape> block_shape(const uint32_t (&block)[3]);
  CUresult make_workspace(LaunchPlan* plan);
  CompileOptions compile_options();
  CUresult charge_local(const LaunchPlan& plan);
  // Calls `body` when all work has ended, or will not any more, and before any that is queued later begins.
  void alone(Done body);
  std::pair<SoftContextRef, Ops> everything(const std::vector<SoftContextRef>& contexts);
  std::shared_ptr<SoftPool> pool_or_default(const PoolRef& pool);
  std::shared_ptr<SoftPool> pool_of(const Allocation& allocation);
  void trim_pools();
  void empty_pools();
  // Tries again if memory is missing: what pools keep for later may be just that. Without locks of pools and memory.
  template <typename Call>
  CUresult with_room(Call call) {
    const CUresult result = call();
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    empty_pools();
    return call();
  }
  std::vector<SoftContextRef> contexts();
  void free_when_idle(const std::vector<SoftContextRef>& contexts, std::function<CUresult()> body, Done done);

  // device_capture.cc: adds a node to the capture that the stream takes part in. With the mutex held.
  CUresult capture_node(SoftStream& stream, const NodeContent& content, uint64_t* value);
  CUresult capture_operation(SoftStream& stream, const vgpu_memory_op& operation);
  CUresult capture_record(SoftStream& stream, SoftEvent& event, uint32_t flags);
  CUresult capture_wait(SoftStream& stream, SoftEvent& event, uint32_t flags);
  void abandon_capture(SoftStream& stream);
  // device_graph.cc, device_exec.cc. With the mutex held.
  CUresult check_content(const NodeContent& content);
  // What goes into a child graph's node: a copy, or what is moved.
  CUresult child_of(const NodeContent& content, const SoftGraph& parent, GraphRef* child);
  CUresult add_node(const SoftGraphRef& graph, std::span<const NodeRef> dependencies, const NodeContent& content,
                    NodeRef* node, uint64_t* value);
  CUresult set_child(SoftExec& exec, SoftExec::Step& step, const NodeContent& content);
  CUresult claim_allocations(SoftExec& exec, Ops* before);
  CUresult claim_pages(const SoftExec& exec);
  void link_steps(const std::vector<SoftExec::Step>& steps, const std::vector<uint32_t>& leaves,
                  const SoftContextRef& context, const Ops& ops, const OpRef& first, const OpRef& end);
  CUresult make_conditional(SoftGraph& graph, SoftNode* node);
  std::shared_ptr<void> graph_memory(uint64_t address);
  // device_again.cc. Of a graph that is made again: null, nobody has it.
  std::shared_ptr<void> graph_memory_again(uint64_t address);
  std::shared_ptr<Condition> condition_again(uint64_t handle);
  CUresult steps_again(const SoftContextRef& context, std::span<const ExecStep> from,
                       std::vector<SoftExec::Step>* steps, std::vector<uint32_t>* leaves, int depth);
  CUresult step_again(const SoftContextRef& context, const ExecStep& from, size_t at, SoftExec::Step* step, int depth);
  // device_conditional.cc, without the mutex. What goes before all steps of a launched graph, and a step.
  CUresult prepare_steps(const SoftContextRef& context, const std::vector<SoftExec::Step>& steps, bool body);
  OpRef begin_steps(const SoftContextRef& context, const std::vector<SoftExec::Step>& steps);
  CUresult make_step(const SoftContextRef& context, int priority, const SoftExec::Step& step, OpRef* op);
  CUresult capture_exec(SoftExec& exec, SoftStream& stream);

  const DeviceConfig config_;
  DeviceHost* const host_;
  const int threads_;
  const uint32_t sms_;
  const std::unique_ptr<Recorder> recorder_;  // null: kernels are not recorded
  std::shared_ptr<Memory> memory_;
  uint64_t guard_table_ = 0;  // where guarded kernels look; 0: none are
  SoftReservations reservations_{memory_};
  EngineMeters meters_;
  Scheduler scheduler_;
  std::atomic<uint64_t> next_grid_{1}, next_stream_{1}, next_capture_{1};

  std::mutex contexts_mutex_;
  std::vector<std::weak_ptr<SoftContext>> contexts_;
  std::mutex pools_mutex_;
  std::shared_ptr<SoftPool> default_pool_;
  std::vector<std::shared_ptr<SoftPool>> pools_;  // with the default; a destroyed one until its memory is free
  std::mutex conditions_mutex_;
  std::map<uint64_t, std::weak_ptr<Condition>> conditions_;  // guarded by conditions_mutex_, by handle
  uint64_t next_condition_ = 1;
  // While graphs are made again: what they may have. Guarded by again_mutex_.
  std::mutex again_mutex_;
  std::map<uint64_t, std::shared_ptr<void>> memory_again_;
  std::vector<std::shared_ptr<Condition>> conditions_again_;
  std::mutex pointing_mutex_;
  // Guarded by pointing_mutex_: managed variables with addresses in their initial values.
  std::vector<std::pair<std::weak_ptr<Image>, std::string>> pointing_;
  std::mutex local_mutex_;
  Charge<DeviceHost> local_share_{memory_->new_charge()};  // guarded by local_mutex_
  std::mutex shapes_mutex_;
  std::vector<std::shared_ptr<const BlockShape>> shapes_;

  // Last members: their threads use everything above.
  Compiler compiler_;
  Executor compute_, copies_;
};

}  // namespace bandsaw::soft
