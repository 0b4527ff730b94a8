#include "backend/runner/process.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "backend/device/errors.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr unsigned kWorkers = 2;
// How often a launch asks whether its kernel has been compiled.
constexpr std::chrono::nanoseconds kCompilerProbe = std::chrono::milliseconds(1);
constexpr std::chrono::nanoseconds kWordProbe = std::chrono::microseconds(30);

Bulk bulk_of(const vgpu_copy& copy) {
  Bulk bulk{engine_of(copy), copy.height > 1 || copy.depth > 1 ? BulkKind::kStrided : BulkKind::kLinear};
  if (__builtin_mul_overflow(copy.width_bytes, copy.height, &bulk.bytes) ||
      __builtin_mul_overflow(bulk.bytes, copy.depth, &bulk.bytes)) {
    bulk.bytes = 0;  // the handler refuses it
  }
  return bulk;
}

Bulk bulk_of(const vgpu_fill& fill) {
  Bulk bulk{Engine::kCompute, BulkKind::kFill};
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.element_bytes}, &bulk.bytes) ||
      __builtin_mul_overflow(bulk.bytes, fill.height, &bulk.bytes)) {
    bulk.bytes = 0;
  }
  return bulk;
}

// What a copy or fill puts on which engine.
std::optional<Bulk> bulk_of_record(const wire::CheckedRecord& record) {
  if (const auto args = wire::read_args<wire::CopyArgs>(record)) return bulk_of(args->copy);
  if (const auto args = wire::read_args<wire::FillArgs>(record)) return bulk_of(args->fill);
  return std::nullopt;
}

// Whose gate it passes; nothing: no engine's is in its way.
std::optional<Engine> gate_of(const wire::CheckedRecord& record) {
  if (!record.info->engine) return std::nullopt;
  if (const auto args = wire::read_args<wire::CopyArgs>(record)) return engine_of(args->copy);
  return record.info->engine;
}

// Of a record that comes out of this ring.
wire::CallContext call_of(const CommandRingRef& ring) {
  wire::CallContext call;
  call.ring = ring->id();
  call.sink = ring;
  return call;
}

}  // namespace

Result<std::unique_ptr<Process>> Process::make(const Reservation* window, const MakeDevice& make_device,
                                               const SlicingSettings& slicing, const Clock* clock) {
  auto memory = GuestMemory::make(window);
  if (!memory.ok()) return memory.status();
  std::unique_ptr<Process> process(new Process(std::move(memory.value()), clock));
  auto device = make_device(process.get());
  if (!device.ok()) return device.status();
  process->device_ = std::move(device.value());
  process->gate_.set_device(process->device_.get());
  process->swapper_.set_device(process->device_.get());
  process->swapper_.set_tell([made = process.get()] { made->gate_.call_arbiter(); });
  process->standstill_.set_device(process->device_.get());
  process->memory_->set_pins(process->device_.get());
  process->slicer_ = std::make_unique<Slicer>(process->device_.get(), &process->gate_, &process->usage_page_,
                                              &process->order_, slicing, clock);
  if (slicing.mps) process->shared_sms_ = process->slicer_->sms();
  process->objects_ = std::make_unique<Objects>(process->device_.get());
  if (process->device_->gives_again()) {
    process->journal_ =
        std::make_unique<Journal>([made = process.get()](uint64_t number) { return made->lives(number); });
  }
  process->segments_ = std::make_unique<GraphSegments>(process->device_.get());
  process->handlers_ = std::make_unique<Handlers>(
      World{*process->device_, *process->objects_, *process->memory_, process->usage_page_, process->output_,
            process->callbacks_, process->exchange_, *process->slicer_, process->pieces_, process->apart_,
            *process->segments_, process->identity_, process->guard_});
  process->workers_ = std::make_unique<WorkerPool>(kWorkers);
  process->launch_pointers_ = std::make_unique<LaunchPointers>(
      &process->slicer_->kernels(), &process->slicer_->cloner(),
      [made = process.get()](std::function<void()> job) { made->workers_->post(std::move(job)); });
  process->swapper_.reaching().set_window(window->base(), window->bytes());
  process->swapper_.reaching().set_find_pointers([made = process.get()](const wire::CheckedRecord& record) {
    const auto args = wire::read_args<wire::LaunchArgs>(record);
    return made->launch_pointers_->find(find_code(*made->objects_, args->launch.function));
  });
  return process;
}

Process::~Process() {
  workers_ = nullptr;  // finishes its jobs, which use the rest
  launch_pointers_ = nullptr;
  handlers_ = nullptr;
  segments_ = nullptr;
  slicer_ = nullptr;
  objects_ = nullptr;
  memory_->set_watch({});
  guard_ = nullptr;
  memory_->set_pins(nullptr);
  device_ = nullptr;
  for (const auto& [id, ring] : rings_) ring->close();  // answers that never came may still hold it
}

Status Process::use_part(uint32_t part) {
  if (part >= VGPU_WINDOW_PARTS)
    return Status::error(EINVAL, "the window has {} parts, no {}", VGPU_WINDOW_PARTS, part);
  part_ = part;
  if (part == 0) return {};
  objects_->table().set_part(part);
  return device_->use_part(part);
}

Status Process::start_guard() {
  if (!guard_settings_.guard && !guard_settings_.clear_shared) return {};
  auto guard = KernelGuard::make(device_.get(), guard_settings_, usage_page_.share());
  if (!guard.ok()) return guard.status();
  guard_ = std::move(guard.value());
  memory_->set_watch([this](uint64_t va, uint64_t bytes, bool there) {
    there ? guard_->allow(va, bytes) : guard_->forbid(va, bytes);
  });
  return {};
}

// The fault did not happen: it is the process's own, and no other client of an MPS daemon hears of it.
CUresult Process::guard_error() {
  if (!guard_) return CUDA_SUCCESS;
  const CUresult error = guard_->error();
  if (error != CUDA_SUCCESS && !poisoned()) {
    log::warn("guard: a kernel was kept from what it may not do at address {:#x}", guard_->wrong_address());
    fail(error);
  }
  return error;
}

Result<CommandRingRef> Process::add_ring(uint32_t id, uint64_t va, uint32_t flags,
                                         std::span<const RunnerSegment> segments, bool goes_on) {
  auto mapped = memory_->map(va, flags & ~VGPU_REGION_DEVICE_VISIBLE, segments);
  if (!mapped.ok()) return mapped.status();
  RegionRef& memory = mapped.value();
  if (memory->bytes() < VGPU_RING_BYTES || memory->read_only()) {
    return Status::error(EINVAL, "ring {} is {} bytes long; it takes {} that can be written", id, memory->bytes(),
                         VGPU_RING_BYTES);
  }
  std::lock_guard lock(rings_mutex_);
  if (rings_.size() >= VGPU_RINGS_MAX) return Status::error(ENOSPC, "more than {} rings", VGPU_RINGS_MAX);
  if (rings_.count(id) != 0) return Status::error(EEXIST, "ring {} is there already", id);
  auto ring = std::make_shared<CommandRing>(id, std::move(memory), waker_.get(), &output_.pending(), goes_on);
  rings_.emplace(id, ring);
  if (const CUresult sticky = sticky_.load(); sticky != CUDA_SUCCESS) ring->set_sticky(sticky);
  return ring;
}

int Process::move_memory(bool to_device) {
  if (!standstill_.at_rest()) return EBUSY;
  switch (to_device ? device_->memory_return() : device_->memory_leave()) {
    case CUDA_SUCCESS:
      return 0;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ENOMEM;
    case CUDA_ERROR_NOT_SUPPORTED:
      return ENOTSUP;
    default:
      return EIO;
  }
}

void Process::forget_ring(uint32_t id) {
  {
    std::lock_guard lock(rings_mutex_);
    rings_.erase(id);
  }
  objects_->forget_ring(id);
}

// Checks a record that comes out of a ring. False: it was wrong, and is answered.
bool Process::begin(const CommandRingRef& ring, const Record& record, wire::CheckedRecord* checked) {
  count(usage_page_.slot().calls);
  if (const char* wrong = wire::check(record.bytes, checked)) {
    protocol_error(fmt::format("ring {}: record {} with opcode {}: {}", ring->id(), record.header.seq,
                               record.header.opcode, wrong));
    ring->reply(record.header.seq, sticky_.load(), {}, {});  // in case that its thread waits
    return false;
  }
  const bool sync = checked->info->mode == wire::Mode::kSync;
  if (sync && !ring->begin_sync(record.header, checked->info->synchronises)) {
    protocol_error(fmt::format("ring {}: {} while a call waits for its reply", ring->id(), checked->info->name));
  }
  return true;
}

void Process::answer_poll(const CommandRingRef& ring, const Record& record) {
  wire::CheckedRecord checked;
  if (!begin(ring, record, &checked)) return;
  wire::CallContext call = call_of(ring);
  wire::dispatch(checked, call, *objects_, *handlers_);
}

void Process::execute(const CommandRingRef& ring, Record& record) {
  const DeviceSection::Scope within(&device_section_);
  wire::CheckedRecord checked;
  if (!begin(ring, record, &checked)) return;
  // `checked` points into the record's bytes, which keep their place when the vector is moved.
  const bool behind = !waiting_.empty() || busy();
  if (!behind && pass_gate(ring, checked)) return perform(ring, checked, record.bytes);
  RecordUse use = use_of(checked, ring->id());
  use.in_graphs = objects_->is_in_graphs(use.event) || objects_->is_in_graphs(use.other_event);
  if (behind && waiting_.lets_past(use) && pass_gate(ring, checked)) return perform(ring, checked, record.bytes);
  if (behind && use.query && waiting_.is_pending(use)) return refuse(ring, checked, CUDA_ERROR_NOT_READY);
  if (behind && !poisoned()) awaits_compiler(checked);  // compiled beside what it waits for
  waiting_.push({ring, std::exchange(record.bytes, {}), checked, use, gate_of(checked)});
}

bool Process::pass_waiting(bool ahead) {
  at_gate_ = at_compiler_ = at_word_ = at_swapper_ = false;
  const DeviceSection::Scope within(&device_section_);
  const bool unfinished = busy() || ahead || (standstill_.wanted() && !workers_->idle());
  const bool released = standstill_.advance(unfinished, !waiting_.empty());
  if (standstill_.at_rest()) return released;
  const CUresult sticky = sticky_.load(std::memory_order_relaxed);
  bool passed = slicer_->advance(poisoned());
  passed |= pieces_.advance(true, sticky);
  if (waiting_.empty() || poisoned()) swapper_.abandon(poisoned());
  passed |= swapper_.advance(busy());
  at_swapper_ |= swapper_.under_way();
  passed |= pass_queue(passed);
  // Pieces whose turn it was not: nobody else has taken it.
  const bool more = pieces_.advance(false, sticky);
  const bool freed = pieces_.free_stalled([this](uint64_t key) { return waiting_.any_but(key); });
  if (more || freed) pass_queue(true);
  unsettled_ |= freed;
  if (unsettled_) unsettled_ = gate_.settle();
  return passed || more || freed || released;
}

// `passed`: something has been issued since it was last called.
bool Process::pass_queue(bool passed) {
  bool any = false;
  while (!waiting_.empty() && !busy()) {
    if (!poisoned() && !pass_gate(waiting_[0].ring, waiting_[0].record)) break;
    any = true;
    perform_waiting(0);
  }
  if (poisoned()) {
    unsettled_ = true;
  } else if (some_may_pass() || waiting_.any_holds() || ((passed || any) && waiting_.any_asks())) {
    any |= pass_others();
  }
  return any;
}

void Process::perform_waiting(size_t at) {
  WaitingRecords::Entry entry = waiting_.take(at);
  perform(entry.ring, entry.record, entry.bytes);
}

// Some wait for an engine whose gate may be open now, or for a gate that lets other streams in.
bool Process::some_may_pass() const {
  const bool streams = waiting_.streams() > 1;
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    if (waiting_.any_of(engine) && (!gate_.waits(engine) || (streams && gate_.lets_streams_in(engine)))) return true;
  }
  return false;
}

// Of those behind one that waits for an engine, for grid slices, or for pieces: no engine waits for another's gate,
// what was asked for is taken when it is granted, and who waits for early work does not wait for all that was queued
// behind it.
bool Process::pass_others() {
  bool passed = false;
  pieces_.nobody_wants();
  WaitingUses ahead(&apart_);
  for (size_t at = 0; at < waiting_.size();) {
    const WaitingRecords::Entry& entry = waiting_[at];
    const auto closed = [&] { return entry.engine && !gate_.may_enter(index_of(*entry.engine), entry.use.stream); };
    if (waiting_.lets_past(entry, ahead) && !closed() && pass_gate(entry.ring, entry.record)) {
      passed = true;
      perform_waiting(at);
    } else {
      ahead.add(entry.use);
      ++at;
    }
  }
  return passed;
}

// Whether it needs no gate, or has passed it. What becomes a node of a graph needs none, nor does a launch that is cut:
// its grid slices pass there.
bool Process::pass_gate(const CommandRingRef& ring, const wire::CheckedRecord& record) {
  if (!poisoned() && !standstill_.admits(record)) return false;
  if (record.opcode == wire::Opcode::kStreamHold && !poisoned() && handlers_->still_holds(record)) {
    at_word_ = true;
    return false;
  }
  const bool node = record.info->engine && handlers_->becomes_node(*ring, record);
  if (swapper_.any() && !poisoned() && !swapper_.admit(record, node)) {
    at_swapper_ = true;
    return false;
  }
  if (!record.info->engine || node) return true;
  if (!poisoned() && awaits_compiler(record)) {
    at_compiler_ = true;
    return false;
  }
  if (!poisoned() && handlers_->cuts_launch(ring, record)) {
    pieces_.others_passed(kCompute);
    return true;
  }
  if (const auto args = wire::read_args<wire::ExecLaunchArgs>(record)) {
    const ObjectRef exec = objects_->find(wire::HandleKind::kExec, args->exec);
    if (exec) {
      const ExecRef graph = std::static_pointer_cast<Exec>(exec);
      return pass_gates(
          graph, identify_graph(args->exec, graph->changes, record.context, stream_key(args->stream, ring->id())));
    }
  }
  if (const auto args = wire::read_args<wire::LaunchArgs>(record); args && gate_.counts_launches()) {
    const Reservation& window = memory_->window();
    return passed_gate(kCompute, gate_.enter_launch(identify(args->launch, record.tail, record.context,
                                                             stream_key(args->launch.stream, ring->id()),
                                                             {window.base(), window.bytes()}),
                                                    part_of_device(args->launch)));
  }
  std::optional<Bulk> bulk = bulk_of_record(record);
  const int32_t at = record.info->stream;
  const uint64_t stream = at < 0 ? 0 : stream_key(wire::handle_at(record, at), ring->id());
  if (bulk && bulk->engine == Engine::kCompute) bulk->id = identify(bulk->kind, bulk->bytes, record.context, stream);
  return pass_gate(index_of(bulk ? bulk->engine : *record.info->engine), bulk, 1, stream);
}

// Of the SMs: under MPS others run on the rest meanwhile.
double Process::part_of_device(const vgpu_launch& launch) const {
  if (shared_sms_ == 0) return 1;
  const double blocks = static_cast<double>(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  return std::min(1.0, blocks / shared_sms_);
}

bool Process::pass_gate(unsigned engine, const std::optional<Bulk>& bulk, uint64_t units, uint64_t stream) {
  return passed_gate(engine, bulk ? pieces_.enter(*bulk) : gate_.enter(engine, units, stream));
}

bool Process::passed_gate(unsigned engine, bool open) {
  at_gate_ |= !open;
  open ? pieces_.others_passed(engine) : pieces_.others_want(engine);
  return open;
}

// A graph that is to be launched in segments, because others want the engine and it would keep it for long.
std::optional<Bulk> Process::bulk_of(const ExecRef& exec) {
  if (!gate_.is_wanted(kCompute) || exec->nodes[kCopyIn] + exec->nodes[kCopyOut] != 0) return std::nullopt;
  const uint64_t nodes = exec->nodes[kCompute], segment = gate_.units_in(kCompute, gate_.quantum_ns() / 2);
  if (segment == 0 || nodes < 3 * segment) return std::nullopt;
  const SegmentsRef segments = segments_->find_or_make(exec, segment);
  if (!segments) return std::nullopt;
  return Bulk{Engine::kCompute, BulkKind::kLinear, segments->all_nodes, segments->nodes.front()};
}

// A graph passes the gates of all engines that it uses, always in the same order, so that two graphs do not wait for
// each other: what one has, it has before it asks for the next.
bool Process::pass_gates(const ExecRef& exec, const LaunchId& id) {
  const auto units = [&](unsigned engine) {
    return exec->nodes[engine] + exec->bytes[engine] / CopyPieces::kUnitBytes;
  };
  if (const auto bulk = bulk_of(exec)) return pass_gate(kCompute, bulk, 1, id.stream);
  unsigned last = 0;
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    if (units(engine) != 0) last = engine;
  }
  if (last == kCompute && gate_.counts_launches())
    return passed_gate(kCompute, gate_.enter_launch(id, 1, std::max<uint64_t>(units(kCompute), 1)));
  for (unsigned engine = 0; engine <= last; ++engine) {
    if (units(engine) == 0 && last != 0) continue;  // an empty graph passes as a launch does
    if (pass_gate(engine, std::nullopt, std::max<uint64_t>(units(engine), 1), id.stream)) continue;
    while (engine-- > 0) gate_.take_back(engine, units(engine));
    return false;
  }
  return true;
}

void Process::wait_at_gate(std::chrono::nanoseconds most) {
  const bool stopping = standstill_.wanted();
  if (!at_compiler_ && !at_word_ && !at_swapper_ && !stopping) return gate_.wait(most);
  gate_.pause();
  const auto probe = at_word_ || at_swapper_ || stopping ? kWordProbe : kCompilerProbe;
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(most, probe));
}

void Process::perform(const CommandRingRef& ring, const wire::CheckedRecord& record, std::vector<std::byte>& bytes) {
  if (swapper_.any()) swapper_.issued(record);
  standstill_.issued(record);
  const CUresult sticky = sticky_.load(std::memory_order_relaxed);
  if (sticky != CUDA_SUCCESS && !(record.info->survives_poison && !protocol_broken())) {
    return refuse(ring, record, sticky);
  }
  if (record.info->run == wire::Run::kInline) {
    gate_.launched(run(ring, record) == CUDA_SUCCESS);
    return;
  }
  auto kept = std::make_shared<std::vector<std::byte>>(std::exchange(bytes, {}));
  workers_->post([this, ring, record, kept] { run(ring, record); });
}

CUresult Process::run(const CommandRingRef& ring, const wire::CheckedRecord& record) {
  wire::CallContext call = call_of(ring);
  Given given;
  const bool noted = journal_ && is_noted(record.opcode);
  const uint64_t place = noted ? journal_->place() : 0;
  if (journal_) load_kernels(record);
  wire::Dispatched outcome;
  {
    const Given::Scope scope(noted ? &given : nullptr);
    outcome = wire::dispatch(record, call, *objects_, *handlers_);
  }
  if (noted && outcome.result == CUDA_SUCCESS) journal_->add(place, record, given);
  if (outcome.result == CUDA_SUCCESS) return CUDA_SUCCESS;
  log::debug("{}: error {}", record.info->name, static_cast<int>(outcome.result));
  if (record.info->mode == wire::Mode::kSync) return outcome.result;
  count(usage_page_.slot().errors);
  finish_async(*ring, wire::done_of(record), outcome.result);
  return outcome.result;
}

void Process::refuse(const CommandRingRef& ring, const wire::CheckedRecord& record, CUresult error) {
  if (record.info->mode == wire::Mode::kSync) {
    ring->reply(record.seq, error, {}, {});
  } else {
    ring->done(wire::done_of(record), error);
  }
}

void Process::protocol_error(const std::string& why) {
  if (protocol_broken_.exchange(true)) return;
  log::error("the guest process broke the protocol and is cut off: {}", why);
  poisoned(CUDA_ERROR_INVALID_VALUE);
}

void Process::run_callback(const HostCallback& callback, CUresult status, Done done) {
  callbacks_.add(callback, status, std::move(done));
}

void Process::poisoned(CUresult error) {
  if (poisoned()) return;
  usage_page_.slot().sticky.store(error, std::memory_order_relaxed);
  usage_page_.charge_fault();
  fail(error);
}

void Process::fail(CUresult error) {
  CUresult healthy = CUDA_SUCCESS;
  if (!sticky_.compare_exchange_strong(healthy, error)) return;
  log::warn("sticky error {}", static_cast<int>(error));
  count(usage_page_.slot().errors);
  std::lock_guard lock(rings_mutex_);
  for (const auto& [id, ring] : rings_) ring->set_sticky(error);
}

void Process::set_expect_calls(std::function<void(std::chrono::steady_clock::time_point)> expect) {
  std::lock_guard lock(expect_mutex_);
  expect_calls_ = std::move(expect);
}

void Process::expect_calls(std::chrono::steady_clock::time_point latest) {
  std::lock_guard lock(expect_mutex_);
  if (expect_calls_) expect_calls_(latest);
}

void Process::compiling(uint32_t kernels) {
  std::lock_guard lock(rings_mutex_);
  for (const auto& [id, ring] : rings_) ring->set_compiling(kernels);
}

}  // namespace bandsaw::runner
