// What a guest process has, for another runner; and how this one becomes what another one was.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include "backend/device/gives_again.h"
#include "backend/runner/process.h"
#include "backend/runner/saved/graphs_again.h"
#include "backend/runner/saved/mappings_again.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

using wire::HandleKind;
using wire::Opcode;

// Programs know what is theirs by these words.
const char* words_for(HandleKind kind) {
  static constexpr const char* kWords[] = {"nothing",
                                           "a context",
                                           "a module",
                                           "a library",
                                           "a kernel",
                                           "a function",
                                           "a stream",
                                           "an event",
                                           "a graph",
                                           "a graph's node",
                                           "an executable graph",
                                           "a memory pool",
                                           "an array",
                                           "a mipmapped array",
                                           "a texture",
                                           "a surface",
                                           "mapped or shared memory",
                                           "a linker"};
  const auto at = static_cast<size_t>(kind);
  return at < std::size(kWords) ? kWords[at] : "something else";
}

// Nobody waits for what a call that is made again answers.
class NoReply : public wire::ReplySink {
 public:
  void reply(uint64_t, CUresult, std::span<const std::byte>, std::span<const std::byte>) override {}
};

// The guest's callback thread asks for its next function, and what it was given before has long ended.
std::vector<std::byte> next_callback(const vgpu_record& call) {
  constexpr size_t kBytes = sizeof(vgpu_record) + sizeof(wire::NextCallbackArgs);
  std::vector<std::byte> bytes((kBytes + VGPU_RECORD_ALIGN - 1) / VGPU_RECORD_ALIGN * VGPU_RECORD_ALIGN);
  vgpu_record header = call;
  header.bytes = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

// A launch that says whose code is to be loaded where, and no more.
std::vector<std::byte> launch_of(uint64_t kernel, uint64_t context) {
  constexpr size_t kBytes = sizeof(vgpu_record) + sizeof(wire::LaunchArgs);
  std::vector<std::byte> bytes((kBytes + VGPU_RECORD_ALIGN - 1) / VGPU_RECORD_ALIGN * VGPU_RECORD_ALIGN);
  const vgpu_record header{.bytes = static_cast<uint32_t>(bytes.size()),
                           .opcode = static_cast<uint32_t>(Opcode::kLaunch),
                           .seq = 1,
                           .context = context,
                           .reserved = 0};
  wire::LaunchArgs args{};
  args.launch.function = kernel;
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &args, sizeof args);
  return bytes;
}

// The handle, other than that of the context, without which the call cannot be made again; 0: there is none.
uint64_t needed_by(const wire::CheckedRecord& record) {
  switch (record.opcode) {
    case Opcode::kLibraryKernel:
    case Opcode::kLibraryGlobal:
    case Opcode::kModuleGlobal:
    case Opcode::kKernelFunction:
    case Opcode::kModuleFunction:
    case Opcode::kFunctionSetAttribute:
    case Opcode::kLibraryBindManaged:
    case Opcode::kPoolSetAttribute:
    case Opcode::kMemoryAllocAsync:
    case Opcode::kMipmapLevel:
    case Opcode::kSurfaceCreate:
      return wire::handle_at(record, 0);
    case Opcode::kTextureCreate:
      return wire::read_args<wire::TextureCreateArgs>(record)->asked.resource.object;
    case Opcode::kLaunch:
      return wire::read_args<wire::LaunchArgs>(record)->launch.function;
    default:
      return 0;
  }
}

ToldDevice told_of(Device& device) {
  vgpu_device_info info{};
  device.info(&info);
  return {.sms = info.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT],
          .capability_major = info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR],
          .capability_minor = info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]};
}

Status damaged(const char* what) { return Status::error(EPROTO, "the program that was saved {}", what); }

}  // namespace

bool Process::lives(uint64_t number) const {
  const HandleKind kind = wire::kind_of(number);
  if (kind == HandleKind::kNone) return device_->gives_again()->has_memory(number);
  return objects_->find(kind, number) != nullptr;
}

// Of a launch: loading its code may give it memory.
bool Process::awaits_compiler(const wire::CheckedRecord& record) {
  if (!journal_) return handlers_->awaits_compiler(record);
  Given given;
  const Given::Scope scope(&given);
  const bool awaits = handlers_->awaits_compiler(record);
  if (!given.numbers().empty()) journal_->add(journal_->place(), record, given, true);
  return awaits;
}

// Of what becomes part of a graph, or will be launched by one: loading its code may give the program memory, as before
// a launch.
void Process::load_kernels(const wire::CheckedRecord& record) {
  uint64_t context = record.context, graph = 0;
  std::set<uint64_t> kernels;
  if (record.opcode == Opcode::kLaunch) {
    if (handlers_->captures()) awaits_compiler(record);
    return;
  }
  if (record.opcode == Opcode::kGraphInstantiate) {
    graph = wire::handle_at(record, 0);
  } else if (record.opcode == Opcode::kExecUpdate || record.opcode == Opcode::kExecNodeSet) {
    context = objects_->table().owner(wire::handle_at(record, 0));
    if (record.opcode == Opcode::kExecUpdate) graph = wire::handle_at(record, 1);
    if (graph == 0 && record.tail.size() >= sizeof(vgpu_launch)) {
      vgpu_launch launch;  // perhaps: of no kernel, it names none
      std::memcpy(&launch, record.tail.data(), sizeof launch);
      kernels.insert(launch.function);
    }
  } else {
    return;
  }
  if (const auto found = std::static_pointer_cast<Graph>(objects_->find(HandleKind::kGraph, graph))) {
    kernels = kernels_of(*device_, objects_->table(), found);
  }
  for (const uint64_t kernel : kernels) {
    const auto bytes = launch_of(kernel, context);
    wire::CheckedRecord launch;
    if (wire::check(bytes, &launch) == nullptr) awaits_compiler(launch);
  }
}

// One of linear memory has to find that there.
bool Process::texture_can_go(const wire::CheckedRecord& record) const {
  const vgpu_resource resource = wire::read_args<wire::TextureCreateArgs>(record)->asked.resource;
  const bool rows = resource.type == CU_RESOURCE_TYPE_PITCH2D;
  if (!rows && resource.type != CU_RESOURCE_TYPE_LINEAR) return true;
  return device_->gives_again()->reaches(resource.address,
                                         rows ? resource.pitch * (resource.height - 1) + 1 : resource.bytes);
}

std::string Process::cannot_go(ProcessState* state) const {
  const std::vector<JournalEntry>& calls = state->calls;
  if (handlers_->captures()) return "a stream that is being captured";
  if (std::string memory = device_->gives_again()->not_given(); !memory.empty()) return memory;
  std::set<uint64_t> noted;
  if (std::string lacks = describe_mappings(*device_->gives_again(), *objects_, &state->mappings, &noted);
      !lacks.empty()) {
    return lacks;
  }
  for (const JournalEntry& call : calls) {
    noted.insert(call.given.begin(), call.given.end());
    wire::CheckedRecord record;
    if (const char* wrong = wire::check(call.record, &record)) return wrong;
    const uint64_t needed = needed_by(record);
    const auto is_here = [this](uint64_t number) { return lives(number); };
    if (!std::all_of(call.given.begin(), call.given.end(), is_here)) return "something of which a part has gone";
    if (record.opcode == Opcode::kTextureCreate && !texture_can_go(record)) {
      return "a texture of memory of the host, or that has gone";
    }
    if ((needed != 0 && !lives(needed)) || (record.info->needs_context && !lives(record.context))) {
      return record.opcode == Opcode::kMemoryAllocAsync ? "memory of a pool that has gone"
                                                        : "something whose code or context has gone";
    }
  }
  GraphsAgain graphs(device_.get(), objects_.get(), memory_.get());
  if (std::string graph = graphs.describe(&state->graphs, &noted); !graph.empty()) return graph;
  for (const uint64_t handle : objects_->table().all()) {
    if (!noted.contains(handle)) return words_for(wire::kind_of(handle));
  }
  return {};
}

std::string Process::rings_state(ProcessState* state) {
  std::lock_guard lock(rings_mutex_);
  for (const auto& [id, ring] : rings_) {
    RingState of{.id = id, .state = ring->state(), .pending = {}};
    if (ring->has_pending) of.pending = ring->pending.bytes;
    const bool waits = waiting_.has(*ring, of.state.call.seq);
    if (of.state.unanswered && !waits) {
      if (of.state.call.opcode != static_cast<uint32_t>(Opcode::kNextCallback)) return "a call that is being answered";
      state->waiting.emplace_back(id, next_callback(of.state.call));
    }
    state->rings.push_back(std::move(of));
  }
  for (size_t i = 0; i < waiting_.size(); ++i) state->waiting.emplace_back(waiting_[i].ring->id(), waiting_[i].bytes);
  return {};
}

void Process::add_heap(uint64_t handle, ProcessState* state) const {
  const auto context = std::static_pointer_cast<Context>(objects_->find(HandleKind::kContext, handle));
  HeapAgain heap = device_->gives_again()->heap_of(context);
  if (heap.bytes != 0) state->heaps.emplace_back(handle, std::move(heap));
}

Status Process::make_heap(uint64_t handle, const HeapAgain& heap) {
  const auto context = std::static_pointer_cast<Context>(objects_->find(HandleKind::kContext, handle));
  if (!context) return damaged("had other contexts");
  const CUresult result = device_->gives_again()->heap_make(context, heap);
  if (result == CUDA_SUCCESS) return {};
  return Status::error(result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EPROTO, "kernels' memory again: error {}",
                       static_cast<int>(result));
}

// Of code that was loaded, by its handles.
std::vector<CodeAgain> Process::loaded_code(const ProcessState& state, std::vector<uint64_t>* handles) const {
  std::vector<CodeAgain> all;
  for (const JournalEntry& call : state.calls) {
    wire::CheckedRecord record;
    if (call.given.empty() || wire::check(call.record, &record) != nullptr) continue;
    if (record.opcode != Opcode::kLibraryLoad && record.opcode != Opcode::kModuleLoad) continue;
    const uint64_t handle = call.given.front();
    ObjectRef object = objects_->find(wire::kind_of(handle), handle);
    if (!object) continue;
    all.push_back({.code = std::move(object), .image = call.code, .variables = {}});
    handles->push_back(handle);
  }
  return all;
}

std::string Process::take_along(ProcessState* state) {
  std::vector<uint64_t> handles;
  std::vector<CodeAgain> all = loaded_code(*state, &handles);
  if (std::string words = device_->gives_again()->take_along(all); !words.empty()) return words;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].variables.empty()) state->code.push_back({handles[i], std::move(all[i].variables)});
  }
  return {};
}

Status Process::expect_along(const ProcessState& state) {
  std::vector<CodeAgain> all;
  for (const CodeState& code : state.code) {
    ObjectRef object = objects_->find(wire::kind_of(code.handle), code.handle);
    if (!object) return damaged("had other code");
    all.push_back({.code = std::move(object), .image = nullptr, .variables = code.variables});
  }
  return device_->gives_again()->expect_along(all);
}

std::string Process::describe(ProcessState* state) {
  if (!journal_) return "objects on a device that does not give the same again (on GPUs: [save] on_gpus)";
  if (guard_) return "guarded kernels";
  std::string why = rings_state(state);
  state->told = told_of(*device_);
  state->window_base = memory_->window().base();
  state->part = part_;
  state->sticky = sticky_.load();
  state->output = output_.copy();
  if (!why.empty() || poisoned()) return why;  // of one that has failed nothing else is of use
  state->generations = objects_->table().generations();
  state->calls = journal_->entries(&why);
  if (why.empty()) why = cannot_go(state);
  for (const uint64_t handle : objects_->table().all()) {
    if (wire::kind_of(handle) == HandleKind::kContext) add_heap(handle, state);
    if (wire::kind_of(handle) != HandleKind::kEvent) continue;
    const auto event = std::static_pointer_cast<Event>(objects_->find(HandleKind::kEvent, handle));
    if (const auto age = device_->gives_again()->event_age(event)) state->events.emplace_back(handle, *age);
  }
  return why.empty() ? take_along(state) : why;
}

Status Process::make_call(const JournalEntry& entry) {
  wire::CheckedRecord record;
  if (const char* wrong = wire::check(entry.record, &record)) return damaged(wrong);
  if (!entry.loads && !is_noted(record.opcode)) return damaged("made a call that is not to be made again");
  Given given(entry.given, entry.code, entry.value);
  const Given::Scope scope(&given);
  if (entry.loads) {
    handlers_->awaits_compiler(record);
  } else {
    wire::CallContext call;
    call.sink = std::make_shared<NoReply>();
    const wire::Dispatched outcome = wire::dispatch(record, call, *objects_, *handlers_);
    if (outcome.result != CUDA_SUCCESS) {
      return Status::error(outcome.result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EPROTO, "{} again: error {}",
                           record.info->name, static_cast<int>(outcome.result));
    }
  }
  if (!given.all_given()) return Status::error(EPROTO, "{} again: it was given something else", record.info->name);
  Given noted;
  for (const uint64_t number : entry.given) noted.give(number);
  noted.set_code(entry.code);
  noted.set_value(entry.value);
  journal_->add(journal_->place(), record, noted, entry.loads);
  return {};
}

Status Process::make_again(const ProcessState& state) {
  if (!journal_ || guard_) return Status::error(ENOTSUP, "this runner cannot become what another one was");
  if (state.window_base != memory_->window().base() || state.part != part_) {
    return Status::error(EADDRNOTAVAIL, "the addresses of the program that was saved are not free here");
  }
  if (state.told != told_of(*device_)) {
    return Status::error(ENODEV, "the program that was saved was told of {} SMs of compute capability {}.{}",
                         state.told.sms, state.told.capability_major, state.told.capability_minor);
  }
  if (objects_->table().size() != 0) return Status::error(EALREADY, "this runner has objects already");
  if (state.generations.size() > HandleTable::kMax) return damaged("has too many handles");
  objects_->table().begin_again(state.generations);
  // Before the runner's own memory takes any addresses.
  if (Status status = make_mappings(*device_, *objects_, state.mappings); !status.ok()) return status;
  GraphsAgain graphs(device_.get(), objects_.get(), memory_.get());
  if (Status status = graphs.make_shared(state.graphs.shared); !status.ok()) return status;
  for (const JournalEntry& call : state.calls) {
    if (Status status = make_call(call); !status.ok()) return status;
  }
  if (Status status = expect_along(state); !status.ok()) return status;
  for (const auto& [context, heap] : state.heaps) {
    if (Status status = make_heap(context, heap); !status.ok()) return status;
  }
  const auto made = [this](const ExecRef& exec, const ContextRef& context, uint64_t flags,
                           std::span<const ExecStep> steps) {
    handlers_->exec_made_again(exec, context, flags, steps);
  };
  if (Status status = graphs.make(state.graphs, made); !status.ok()) return status;
  objects_->table().finish_again();
  for (const auto& [handle, age] : state.events) {
    const auto event = std::static_pointer_cast<Event>(objects_->find(HandleKind::kEvent, handle));
    if (!event || device_->gives_again()->event_set_age(event, age) != CUDA_SUCCESS) return damaged("had other events");
  }
  output_.print(state.output);
  if (state.sticky != CUDA_SUCCESS) poisoned(state.sticky);
  log::info("becomes a program that was saved: {} calls are made again", state.calls.size());
  return {};
}

// A ring that is not in the state is a new one; one that is gone takes its records along.
Status Process::go_on(const ProcessState& state, std::vector<AgainRecord>* again) {
  std::lock_guard lock(rings_mutex_);
  for (const auto& [id, ring] : rings_) ring->set_state({});
  for (const RingState& of : state.rings) {
    const auto ring = rings_.find(of.id);
    if (ring == rings_.end()) continue;
    if (!ring->second->set_state(of.state)) return damaged("had other rings");
    if (of.pending.size() < sizeof(vgpu_record)) continue;
    ring->second->pending.bytes = of.pending;
    std::memcpy(&ring->second->pending.header, of.pending.data(), sizeof(vgpu_record));
    ring->second->has_pending = true;
  }
  for (const auto& [id, bytes] : state.waiting) {
    const auto ring = rings_.find(id);
    if (ring == rings_.end()) continue;
    if (bytes.size() < sizeof(vgpu_record)) return damaged("had other calls");
    Record record{.header = {}, .bytes = bytes};
    std::memcpy(&record.header, bytes.data(), sizeof(vgpu_record));
    again->emplace_back(ring->second, std::move(record));
  }
  return {};
}

}  // namespace bandsaw::runner
