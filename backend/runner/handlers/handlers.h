// What each wire call does, in terms of a Device (guest-driver/uapi/calls/wire.toml has the rows).
//
// Handles are resolved by the generated decoder; what remains here is guest addresses, object ownership, and the way
// back of completions. Errors of asynchronous calls are returned and surface as Process::execute says.
#pragma once

#include <set>

#include "backend/control/vgpu_identity.h"
#include "backend/runner/execution/copy_pieces.h"
#include "backend/runner/execution/graph_segments.h"
#include "backend/runner/guard/kernel_guard.h"
#include "backend/runner/handlers/node_payload.h"
#include "backend/runner/memory/guest_memory.h"
#include "backend/runner/memory/usage_page_view.h"
#include "backend/runner/objects/exchange.h"
#include "backend/runner/objects/lent_memory.h"
#include "backend/runner/objects/objects.h"
#include "backend/runner/slicing/slicer.h"
#include "backend/runner/wire/callbacks.h"
#include "backend/runner/wire/command_ring.h"
#include "backend/runner/wire/output.h"
#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::runner {

// The parts of a guest process that handlers work with; all outlive them.
struct World {
  Device& device;
  Objects& objects;
  GuestMemory& memory;
  UsagePageView& usage_page;
  Output& output;
  CallbackQueue& callbacks;
  ExchangeClient& exchange;
  Slicer& slicer;
  CopyPieces& pieces;
  ApartStreams& apart;  // of the record loop's thread
  GraphSegments& segments;
  const VgpuIdentity& identity;
  const std::unique_ptr<KernelGuard>& guard;  // null: kernels are not guarded
};

class Handlers final : public wire::WireHandlers {
  template <typename T>
  using R = const wire::Resolved<T>&;
  using C = const wire::CallContext&;
  using Bytes = std::span<const std::byte>;

 public:
  explicit Handlers(const World& world);

  // handlers_context.cc: the device, contexts, what is asked again and again
  CUresult call_ids(C call, std::string* ids) override;
  CUresult device_info(C call, vgpu_device_info* info) override;
  CUresult memory_info(C call, uint64_t* free, uint64_t* total) override;
  CUresult fetch_output(C call, std::string* text) override;
  void next_callback(C call, uint64_t finished, wire::NextCallbackAnswer answer) override;
  CUresult context_create(C call, uint32_t flags, uint32_t primary, uint64_t* context) override;
  CUresult context_destroy(C call, R<Context> context) override;
  CUresult context_reset(C call, R<Context> context) override;
  void context_synchronize(C call, R<Context> context, wire::Answer answer) override;
  CUresult context_get_limit(C call, uint32_t limit, uint64_t* value) override;
  CUresult context_set_limit(C call, uint32_t limit, uint64_t value) override;

  CUresult context_reset_l2(C call) override;

  // handlers_code.cc
  CUresult library_load(C call, uint64_t image, uint64_t size, uint64_t* library, std::string* log) override;
  CUresult library_unload(C call, R<Library> library) override;
  CUresult library_kernels(C call, R<Library> library, uint32_t first, uint32_t* count, std::string* names) override;
  CUresult library_kernel(C call, R<Library> library, std::string_view name, uint64_t* kernel, vgpu_function_info* info,
                          std::string* parameters) override;
  CUresult library_global(C call, R<Library> library, std::string_view name, uint64_t* address,
                          uint64_t* size) override;
  CUresult variable_around(C call, uint64_t at, uint64_t* address, uint64_t* size) override;
  CUresult library_managed(C call, R<Library> library, uint32_t* count, std::string* variables) override;
  CUresult library_bind_managed(C call, R<Library> library, uint64_t address, std::string_view name) override;
  CUresult kernel_function(C call, R<Kernel> kernel, uint64_t* function, vgpu_function_info* info,
                           std::string* parameters) override;
  CUresult module_load(C call, uint64_t image, uint64_t size, uint64_t* module, std::string* log) override;
  CUresult module_unload(C call, R<Module> module) override;
  CUresult module_function(C call, R<Module> module, std::string_view name, uint64_t* function,
                           vgpu_function_info* info, std::string* parameters) override;
  CUresult module_functions(C call, R<Module> module, uint32_t first, uint32_t* count, std::string* names) override;
  CUresult module_global(C call, R<Module> module, std::string_view name, uint64_t* address, uint64_t* size) override;
  CUresult link_create(C call, Bytes options, uint64_t* linker) override;
  CUresult link_add(C call, R<Linker> linker, uint32_t type, uint64_t data, uint64_t size, std::string_view name,
                    std::string* log) override;
  CUresult link_complete(C call, R<Linker> linker, uint64_t* size, std::string* log) override;
  CUresult link_image(C call, R<Linker> linker, uint64_t to, uint64_t size) override;
  CUresult link_destroy(C call, R<Linker> linker) override;
  CUresult function_set_attribute(C call, uint64_t function, uint32_t attribute, int32_t value) override;
  CUresult occupancy(C call, uint64_t function, uint32_t block_threads, uint64_t shared_bytes,
                     uint32_t* blocks) override;
  CUresult occupancy_clusters(C call, const vgpu_launch& launch, uint32_t* clusters, uint32_t* largest) override;
  CUresult tensor_map_encode(C call, const vgpu_tensor_shape& shape, vgpu_tensor_map* map) override;
  CUresult tensor_map_move(C call, const vgpu_tensor_map& old, uint64_t address, vgpu_tensor_map* map) override;

  // handlers_memory.cc
  CUresult memory_alloc(C call, uint64_t size, uint64_t* address) override;
  void memory_free(C call, uint64_t address, wire::Answer answer) override;
  CUresult managed_add(C call, uint64_t address, uint64_t size) override;
  void managed_remove(C call, uint64_t address, wire::Answer answer) override;
  void settle(C call, wire::Answer answer) override;
  CUresult pool_create(C call, const vgpu_pool_props& props, uint64_t* pool) override;
  CUresult pool_default(C call, uint64_t* pool) override;
  CUresult pool_destroy(C call, R<Pool> pool) override;
  CUresult pool_trim(C call, R<Pool> pool, uint64_t keep) override;
  CUresult pool_get_attribute(C call, R<Pool> pool, uint32_t attribute, uint64_t* value) override;
  CUresult pool_set_attribute(C call, R<Pool> pool, uint32_t attribute, uint64_t value) override;
  CUresult memory_alloc_async(C call, R<Pool> pool, uint64_t size, R<Stream> stream, uint64_t* address) override;
  CUresult memory_free_async(C call, uint64_t address, R<Stream> stream) override;
  CUresult copy(C call, const vgpu_copy& copy, R<Stream> stream, const vgpu_done& done) override;
  CUresult copy_in(C call, uint64_t destination, R<Stream> stream, Bytes data) override;
  void copy_out(C call, uint64_t source, uint64_t size, R<Stream> stream, wire::CopyOutAnswer answer) override;
  CUresult fill(C call, const vgpu_fill& fill, R<Stream> stream, const vgpu_done& done) override;

  // handlers_vmm.cc
  CUresult memory_granularity(C call, const vgpu_memory_props& props, uint32_t recommended, uint64_t* bytes) override;
  CUresult memory_create(C call, const vgpu_memory_props& props, uint64_t size, uint64_t* memory,
                         vgpu_memory_props* made) override;
  CUresult memory_release(C call, R<Memory> memory) override;
  CUresult address_reserve(C call, uint64_t size, uint64_t alignment, uint64_t* address) override;
  CUresult address_adopt(C call, uint64_t address, uint64_t size) override;
  CUresult address_free(C call, uint64_t address, uint64_t size) override;
  CUresult memory_map(C call, uint64_t address, uint64_t size, uint64_t offset, R<Memory> memory) override;
  CUresult memory_unmap(C call, uint64_t address, uint64_t size) override;
  CUresult memory_set_access(C call, uint64_t address, uint64_t size, uint32_t access) override;
  CUresult memory_get_access(C call, uint64_t address, uint32_t* access) override;

  // handlers_exchange.cc
  void memory_export(C call, R<Memory> memory, uint64_t address, wire::MemoryExportAnswer answer) override;
  void memory_import(C call, const vgpu_exchange_key& key, wire::MemoryImportAnswer answer) override;
  void memory_lend(C call, R<Memory> memory, uint64_t address, wire::MemoryLendAnswer answer) override;
  void memory_borrow(C call, const vgpu_exchange_key& key, wire::MemoryBorrowAnswer answer) override;
  void event_export(C call, R<Event> event, wire::EventExportAnswer answer) override;
  void event_import(C call, const vgpu_exchange_key& key, wire::EventImportAnswer answer) override;

  // handlers_shared_segment.cc
  void checkpoint_process(C call, uint32_t action, uint32_t pid, uint64_t timeout_ms,
                          wire::CheckpointProcessAnswer answer) override;
  void segment_get(C call, uint64_t size, uint32_t flags, std::string_view name,
                   wire::SegmentGetAnswer answer) override;
  void segment_attach(C call, uint32_t flags, std::string_view name, wire::SegmentAttachAnswer answer) override;
  CUresult segment_detach(C call, R<Memory> memory) override;
  void segment_remove(C call, std::string_view name, wire::Answer answer) override;

  // handlers_array.cc
  CUresult array_create(C call, const vgpu_array& asked, uint64_t* array, vgpu_array* made) override;
  void array_destroy(C call, R<Array> array, wire::Answer answer) override;
  CUresult array_plane(C call, R<Array> array, uint32_t plane, uint64_t* plane_array, vgpu_array* made) override;
  CUresult mipmap_create(C call, const vgpu_array& asked, uint64_t* mipmap) override;
  CUresult mipmap_level(C call, R<Mipmap> mipmap, uint32_t level, uint64_t* array, vgpu_array* made) override;
  void mipmap_destroy(C call, R<Mipmap> mipmap, wire::Answer answer) override;
  CUresult texture_create(C call, const vgpu_texture& asked, uint64_t* texture, uint64_t* value) override;
  CUresult texture_destroy(C call, R<Texture> texture) override;
  CUresult texture_linear_width(C call, uint32_t format, uint32_t channels, uint64_t* elements) override;
  CUresult surface_create(C call, R<Array> array, uint64_t* surface, uint64_t* value) override;
  CUresult surface_destroy(C call, R<Surface> surface) override;
  CUresult texture_bind(C call, R<Module> module, const vgpu_texture& asked, std::string_view name,
                        uint64_t* texture) override;
  CUresult surface_bind(C call, R<Module> module, R<Array> array, std::string_view name, uint64_t* surface) override;
  CUresult reference_find(C call, R<Module> module, uint32_t surface, std::string_view name) override;

  // handlers_stream.cc: streams, events, launches
  CUresult stream_create(C call, uint32_t flags, int32_t priority, uint64_t* stream) override;
  CUresult stream_create_part(C call, uint32_t flags, int32_t priority, uint32_t first, uint32_t count,
                              uint64_t* stream) override;
  CUresult stream_destroy(C call, R<Stream> stream) override;
  void stream_synchronize(C call, R<Stream> stream, wire::Answer answer) override;
  CUresult stream_query(C call, R<Stream> stream) override;
  CUresult stream_wait_event(C call, R<Stream> stream, R<Event> event, uint32_t flags) override;
  CUresult stream_callback(C call, R<Stream> stream, uint64_t function, uint64_t data, uint32_t kind) override;
  CUresult stream_write_value(C call, R<Stream> stream, uint64_t address, uint64_t value, uint32_t bytes,
                              uint32_t flags) override;
  CUresult stream_hold(C call, R<Stream> stream, uint64_t address, uint64_t value) override;
  CUresult stream_wait_value(C call, R<Stream> stream, uint64_t address, uint64_t value, uint32_t bytes,
                             uint32_t flags) override;
  CUresult event_create(C call, uint32_t flags, uint64_t* event) override;
  CUresult event_destroy(C call, R<Event> event) override;
  CUresult event_record(C call, R<Event> event, R<Stream> stream, uint32_t flags) override;
  CUresult event_query(C call, R<Event> event) override;
  void event_synchronize(C call, R<Event> event, wire::Answer answer) override;
  CUresult event_elapsed(C call, R<Event> start, R<Event> end, float* milliseconds) override;
  CUresult launch(C call, const vgpu_launch& launch, Bytes parameters) override;

  // handlers_graph.cc, handlers_capture.cc
  CUresult capture_begin(C call, R<Stream> stream, uint32_t capture_mode, R<Graph> graph, Bytes dependencies) override;
  CUresult capture_end(C call, R<Stream> stream, uint64_t* graph) override;
  CUresult capture_info(C call, R<Stream> stream, vgpu_capture_info* info, std::string* dependencies) override;
  CUresult capture_update(C call, R<Stream> stream, uint32_t flags, Bytes dependencies) override;
  CUresult graph_create(C call, uint64_t* graph) override;
  CUresult graph_destroy(C call, R<Graph> graph) override;
  CUresult graph_clone(C call, R<Graph> graph, uint64_t* clone) override;
  CUresult graph_add_node(C call, R<Graph> graph, uint32_t type, uint32_t dependencies, Bytes data, uint64_t* node,
                          uint64_t* value) override;
  CUresult graph_conditional(C call, R<Graph> graph, uint32_t initial, uint32_t flags, uint64_t* handle) override;
  CUresult node_bodies(C call, R<Node> node, std::string* graphs) override;
  CUresult graph_nodes(C call, R<Graph> graph, uint32_t which, uint32_t* count, std::string* nodes) override;
  CUresult graph_edges(C call, R<Graph> graph, uint32_t* count, std::string* edges) override;
  CUresult graph_change_edges(C call, R<Graph> graph, uint32_t add, Bytes edges) override;
  CUresult node_neighbours(C call, R<Node> node, uint32_t which, uint32_t* count, std::string* nodes) override;
  CUresult node_get(C call, R<Node> node, uint32_t* type, std::string* payload) override;
  CUresult node_set(C call, R<Node> node, Bytes payload) override;
  CUresult node_graph(C call, R<Node> node, uint64_t* graph) override;
  CUresult node_find_in_clone(C call, R<Node> node, R<Graph> clone, uint64_t* found) override;
  CUresult node_destroy(C call, R<Node> node) override;
  CUresult graph_instantiate(C call, R<Graph> graph, uint64_t flags, uint64_t* exec) override;
  CUresult exec_update(C call, R<Exec> exec, R<Graph> graph, uint32_t* result, uint64_t* error_node) override;
  CUresult exec_node_set(C call, R<Exec> exec, R<Node> node, Bytes payload) override;
  CUresult exec_node_enable(C call, R<Exec> exec, R<Node> node, uint32_t enabled) override;
  CUresult exec_node_enabled(C call, R<Exec> exec, R<Node> node, uint32_t* enabled) override;
  CUresult exec_destroy(C call, R<Exec> exec) override;
  CUresult exec_launch(C call, R<Exec> exec, R<Stream> stream) override;
  CUresult graph_memory_get(C call, uint32_t attribute, uint64_t* value) override;
  CUresult graph_memory_reset(C call, uint32_t attribute) override;
  CUresult graph_memory_trim(C call) override;
  CUresult graph_memory_free(C call, uint64_t address, R<Stream> stream) override;

  // The record's work is put into a graph that its stream captures, not on an engine. On the record loop's thread.
  bool becomes_node(const CommandRing& ring, const wire::CheckedRecord& record);
  // Of a process that was made anew (saved/graphs_again.h).
  void exec_made_again(const ExecRef& exec, const ContextRef& context, uint64_t flags, std::span<const ExecStep> steps);
  bool captures() const { return !capturing_.empty(); }
  // Whether a stream_hold's word has not come to its value yet.
  bool still_holds(const wire::CheckedRecord& record) const;
  // The record is a launch whose kernel is still being compiled; asks for that. On the record loop's thread.
  bool awaits_compiler(const wire::CheckedRecord& record) const;
  // The record is a launch that is cut: its grid slices pass the gate in its stead. Call it just before the gate, on
  // the record loop's thread; launch() goes by what was decided.
  bool cuts_launch(const CommandRingRef& ring, const wire::CheckedRecord& record);

 private:
  HandleTable& table() { return world_.objects.table(); }
  // Enters a new object; CUDA_ERROR_OUT_OF_MEMORY when the table is full.
  CUresult resource_object(const vgpu_resource& resource, ObjectRef* object);
  CUresult give(wire::HandleKind kind, ObjectRef object, uint64_t owner, uint64_t* handle, bool once = false);
  CUresult give_code(wire::HandleKind kind, const Code& code, uint64_t owner, uint64_t* handle,
                     vgpu_function_info* info, std::string* parameters);
  CUresult copy_image(uint64_t image, uint64_t size, std::vector<std::byte>* bytes, std::string* log);
  // The same for code that is to run.
  CUresult copy_code(uint64_t image, uint64_t size, std::vector<std::byte>* bytes, std::string* log);
  bool is_capturing(const StreamRef& stream);
  bool is_cut(const StreamRef& stream);
  CUresult launch_segments(C call, const ExecRef& exec, const SegmentsRef& segments, R<Stream> stream);
  CUresult begin_pieces(C call, R<Stream> stream, CopyPieces::Issue issue, std::function<uint64_t()> left, Done done);
  CUresult check_word(uint64_t address, uint32_t bytes);
  CUresult find_nodes(Bytes handles, std::vector<NodeRef>* nodes);
  CUresult list_nodes(const std::vector<NodeRef>& nodes, uint64_t graph, std::string* out);
  void withdraw(uint64_t thing);
  void withdraw_of(uint64_t context);
  CUresult decode_for(const NodeRef& node, Bytes payload, NodeContent* content);

  // A launch whose handles are resolved, and what becomes of it.
  struct NextLaunch {
    uint64_t seq = 0;  // of its record
    LaunchCaller caller;
    StreamRef stream;
    Launch launch;  // points into the record
    PreparedLaunch prepared;
  };
  CUresult prepare_launch(C call, const vgpu_launch& launch, Bytes parameters, NextLaunch* next);

  const World world_;
  std::mutex linkers_mutex_;
  std::vector<std::weak_ptr<Linker>> linkers_;  // that may be alive; guarded by linkers_mutex_
  Device& device_;
  GraphMemory graph_memory_;
  std::set<const Stream*> capturing_;  // on which captures have begun; the record loop's

  std::optional<NextLaunch> next_launch_;  // the record loop's: what cuts_launch() was last asked of

  // What this process has published: by address or handle.
  struct Published {
    ExchangeKey key{};
    uint64_t context = 0;  // whose end is the thing's end; 0: none
    uint64_t bytes = 0, offset = 0;
  };
  std::mutex published_mutex_;
  std::map<uint64_t, Published> published_;  // guarded by published_mutex_
  void unlend(uint64_t name);
  void revoked(const ExchangeKey& key);
  CUresult take_segment(const ExchangeClient::Thing& thing, uint32_t access, uint64_t* handle);
  LentMemory lent_;                                                     // guarded by published_mutex_
  std::map<ExchangeKey, std::vector<std::weak_ptr<Memory>>> borrowed_;  // guarded by published_mutex_
  std::map<uint64_t, ExchangeKey> attached_;                            // of segments, by handle; as the line before
};

// Where a completion of an asynchronous call goes: its done word, or the ring's next synchronising call.
void finish_async(CommandRing& ring, const vgpu_done& done, CUresult result);

inline std::shared_ptr<CommandRing> ring_of(const wire::CallContext& call) {
  return std::static_pointer_cast<CommandRing>(call.sink);
}

// Kernel or function by its handle; both null when there is none.
Code find_code(Objects& objects, uint64_t handle);

}  // namespace bandsaw::runner
