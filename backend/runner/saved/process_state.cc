#include "backend/runner/saved/process_state.h"

#include <cerrno>
#include <cstring>

namespace bandsaw::runner {
namespace {

// Of one list; more than any process has.
constexpr uint64_t kCountMost = 1u << 22, kBytesMost = 1ull << 30;
// Bodies of conditional nodes within each other; graphs are no deeper.
constexpr int kBodiesDeep = 32;

class Writer {
 public:
  template <typename T>
  void one(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    raw(&value, sizeof value);
  }
  void bytes(std::span<const std::byte> data) {
    one(uint64_t{data.size()});
    raw(data.data(), data.size());
  }
  void text(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
  template <typename T>
  void numbers(const std::vector<T>& all) {
    bytes(std::as_bytes(std::span(all)));
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  void raw(const void* data, size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), begin, begin + size);
  }
  std::vector<std::byte> out_;
};

// After something that is not there all is zero, and good() says so.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  T one() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  // No other number is one.
  CUresult result() {
    const auto number = one<uint32_t>();
    good_ = good_ && number <= CUDA_ERROR_UNKNOWN;
    return good_ ? static_cast<CUresult>(number) : CUDA_SUCCESS;
  }
  std::span<const std::byte> bytes() {
    const auto size = one<uint64_t>();
    return size <= kBytesMost && take(size) ? taken_ : std::span<const std::byte>();
  }
  std::vector<std::byte> blob() {
    const auto found = bytes();
    return {found.begin(), found.end()};
  }
  std::string text() {
    const auto found = bytes();
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  template <typename T>
  std::vector<T> numbers() {
    const auto found = bytes();
    good_ = good_ && found.size() % sizeof(T) == 0;
    std::vector<T> all(good_ ? found.size() / sizeof(T) : 0);
    if (!all.empty()) std::memcpy(all.data(), found.data(), all.size() * sizeof(T));
    return all;
  }
  // How many follow, each of some bytes.
  uint64_t count() {
    const auto number = one<uint64_t>();
    good_ = good_ && number <= std::min<uint64_t>(kCountMost, in_.size());
    return good_ ? number : 0;
  }
  void fail() { good_ = false; }
  bool good() const { return good_; }
  bool at_end() const { return good_ && in_.empty(); }

 private:
  bool take(uint64_t size) {
    good_ = good_ && size <= in_.size();
    if (!good_) return false;
    taken_ = in_.first(size);
    in_ = in_.subspan(size);
    return true;
  }
  std::span<const std::byte> in_, taken_;
  bool good_ = true;
};

void write(Writer* out, const JournalEntry& call) {
  out->bytes(call.record);
  out->numbers(call.given);
  out->one(uint8_t{call.loads});
  out->one(call.value);
  out->one(uint8_t{call.code != nullptr});
  if (call.code) out->bytes(*call.code);
}

JournalEntry read_call(Reader* in) {
  JournalEntry call;
  call.record = in->blob();
  call.given = in->numbers<uint64_t>();
  call.loads = in->one<uint8_t>() != 0;
  call.value = in->one<uint64_t>();
  if (in->one<uint8_t>() != 0) call.code = std::make_shared<const std::vector<std::byte>>(in->blob());
  return call;
}

void write(Writer* out, const MemoryState& memory) {
  out->one(memory.key);
  out->one(memory.bytes);
  out->numbers(memory.handles);
}

MemoryState read_memory(Reader* in) {
  MemoryState memory;
  memory.key = in->one<uint64_t>();
  memory.bytes = in->one<uint64_t>();
  memory.handles = in->numbers<uint64_t>();
  return memory;
}

void write(Writer* out, const ReservationState& reservation) {
  out->one(reservation.address);
  out->one(reservation.bytes);
  out->numbers(reservation.mappings);
}

ReservationState read_reservation(Reader* in) {
  ReservationState reservation;
  reservation.address = in->one<uint64_t>();
  reservation.bytes = in->one<uint64_t>();
  reservation.mappings = in->numbers<MappingState>();
  return reservation;
}

void write(Writer* out, const GraphState& graph) {
  out->one(graph.handle);
  out->one(graph.owner);
  out->one(uint8_t{graph.inner});
  out->one(uint8_t{graph.body});
  out->one(uint64_t{graph.nodes.size()});
  for (const NodeState& node : graph.nodes) {
    out->one(node.handle);
    out->one(node.type);
    out->one(node.child);
    out->text(node.payload);
    out->one(node.original_graph);
    out->one(node.original_node);
    out->numbers(node.bodies);
  }
  out->numbers(graph.edges);
  out->numbers(graph.conditions);
}

GraphState read_graph(Reader* in) {
  GraphState graph;
  graph.handle = in->one<uint64_t>();
  graph.owner = in->one<uint64_t>();
  graph.inner = in->one<uint8_t>() != 0;
  graph.body = in->one<uint8_t>() != 0;
  for (uint64_t left = in->count(); left > 0 && in->good(); --left) {
    NodeState& node = graph.nodes.emplace_back();
    node.handle = in->one<uint64_t>();
    node.type = in->one<uint32_t>();
    node.child = in->one<uint32_t>();
    node.payload = in->text();
    node.original_graph = in->one<uint32_t>();
    node.original_node = in->one<uint32_t>();
    node.bodies = in->numbers<uint32_t>();
  }
  graph.edges = in->numbers<uint32_t>();
  graph.conditions = in->numbers<uint64_t>();
  return graph;
}

void write(Writer* out, const std::vector<StepState>& steps) {
  out->one(uint64_t{steps.size()});
  for (const StepState& step : steps) {
    out->one(step.graph);
    out->one(step.node);
    out->one(step.type);
    out->one(uint8_t{step.end});
    out->one(uint8_t{step.enabled});
    out->text(step.payload);
    out->numbers(step.after);
    out->one(uint64_t{step.bodies.size()});
    for (const std::vector<StepState>& body : step.bodies) write(out, body);
  }
}

void write(Writer* out, const ExecState& exec) {
  out->one(exec.handle);
  out->one(exec.context);
  out->one(exec.flags);
  write(out, exec.steps);
}

std::vector<StepState> read_steps(Reader* in, int depth) {
  std::vector<StepState> steps;
  for (uint64_t left = in->count(); left > 0 && in->good(); --left) {
    StepState& step = steps.emplace_back();
    step.graph = in->one<uint32_t>();
    step.node = in->one<uint32_t>();
    step.type = in->one<uint32_t>();
    step.end = in->one<uint8_t>() != 0;
    step.enabled = in->one<uint8_t>() != 0;
    step.payload = in->text();
    step.after = in->numbers<uint32_t>();
    const uint64_t bodies = in->count();
    if (depth >= kBodiesDeep && bodies != 0) in->fail();
    for (uint64_t body = 0; body < bodies && in->good(); ++body) step.bodies.push_back(read_steps(in, depth + 1));
  }
  return steps;
}

ExecState read_exec(Reader* in) {
  ExecState exec;
  exec.handle = in->one<uint64_t>();
  exec.context = in->one<uint64_t>();
  exec.flags = in->one<uint64_t>();
  exec.steps = read_steps(in, 0);
  return exec;
}

void write(Writer* out, const CodeState& code) {
  out->one(code.handle);
  out->one(uint64_t{code.variables.size()});
  for (const VariableAgain& variable : code.variables) {
    out->text(variable.name);
    out->one(variable.address);
    out->one(variable.bytes);
  }
}

CodeState read_code(Reader* in) {
  CodeState code;
  code.handle = in->one<uint64_t>();
  for (uint64_t left = in->count(); left > 0 && in->good(); --left) {
    VariableAgain& variable = code.variables.emplace_back();
    variable.name = in->text();
    variable.address = in->one<uint64_t>();
    variable.bytes = in->one<uint64_t>();
  }
  return code;
}

void write(Writer* out, const RingState& ring) {
  out->one(ring.id);
  out->one(ring.state.head);
  out->one(ring.state.late_error);
  out->bytes(ring.pending);
}

RingState read_ring(Reader* in) {
  RingState ring;
  ring.id = in->one<uint32_t>();
  ring.state.head = in->one<uint64_t>();
  ring.state.late_error = in->result();
  ring.pending = in->blob();
  return ring;
}

}  // namespace

std::vector<std::byte> to_bytes(const ProcessState& state) {
  Writer out;
  out.one(wire::kSchema);
  out.one(state.told);
  out.one(state.window_base);
  out.one(state.part);
  out.one(state.sticky);
  out.one(state.last_seq);
  out.text(state.output);
  out.numbers(state.generations);
  out.one(uint64_t{state.mappings.memory.size()});
  for (const MemoryState& memory : state.mappings.memory) write(&out, memory);
  out.one(uint64_t{state.mappings.reservations.size()});
  for (const ReservationState& reservation : state.mappings.reservations) write(&out, reservation);
  out.one(uint64_t{state.calls.size()});
  for (const JournalEntry& call : state.calls) write(&out, call);
  out.one(uint64_t{state.code.size()});
  for (const CodeState& code : state.code) write(&out, code);
  out.one(uint64_t{state.heaps.size()});
  for (const auto& [context, heap] : state.heaps) {
    out.one(context);
    out.one(heap.base);
    out.one(heap.bytes);
    out.numbers(heap.live);
  }
  out.numbers(state.graphs.shared.memory);
  out.numbers(state.graphs.shared.conditions);
  out.one(uint64_t{state.graphs.graphs.size()});
  for (const GraphState& graph : state.graphs.graphs) write(&out, graph);
  out.one(uint64_t{state.graphs.execs.size()});
  for (const ExecState& exec : state.graphs.execs) write(&out, exec);
  out.one(uint64_t{state.events.size()});
  for (const auto& [handle, age] : state.events) {
    out.one(handle);
    out.one(age);
  }
  out.one(uint64_t{state.rings.size()});
  for (const RingState& ring : state.rings) write(&out, ring);
  out.one(uint64_t{state.waiting.size()});
  for (const auto& [ring, record] : state.waiting) {
    out.one(ring);
    out.bytes(record);
  }
  return out.take();
}

Result<ProcessState> read_process_state(std::span<const std::byte> bytes) {
  Reader in(bytes);
  const auto schema = in.one<vgpu_schema>();
  if (std::memcmp(&schema, &wire::kSchema, sizeof schema) != 0) {
    return Status::error(EPROTO, "it was saved by another release");
  }
  ProcessState state;
  state.told = in.one<ToldDevice>();
  state.window_base = in.one<uint64_t>();
  state.part = in.one<uint32_t>();
  state.sticky = in.result();
  state.last_seq = in.one<uint64_t>();
  state.output = in.text();
  state.generations = in.numbers<uint32_t>();
  MappingStates& mappings = state.mappings;
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) mappings.memory.push_back(read_memory(&in));
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) {
    mappings.reservations.push_back(read_reservation(&in));
  }
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) state.calls.push_back(read_call(&in));
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) state.code.push_back(read_code(&in));
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) {
    auto& [context, heap] = state.heaps.emplace_back();
    context = in.one<uint64_t>();
    heap.base = in.one<uint64_t>();
    heap.bytes = in.one<uint64_t>();
    heap.live = in.numbers<uint64_t>();
  }
  state.graphs.shared.memory = in.numbers<GraphMemoryAgain>();
  state.graphs.shared.conditions = in.numbers<ConditionAgain>();
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) state.graphs.graphs.push_back(read_graph(&in));
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) state.graphs.execs.push_back(read_exec(&in));
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) {
    const auto handle = in.one<uint64_t>();
    state.events.emplace_back(handle, in.one<int64_t>());
  }
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) state.rings.push_back(read_ring(&in));
  for (uint64_t left = in.count(); left > 0 && in.good(); --left) {
    const auto ring = in.one<uint32_t>();
    state.waiting.emplace_back(ring, in.blob());
  }
  if (!in.at_end()) return Status::error(EPROTO, "what is said of a program's objects is damaged");
  return state;
}

}  // namespace bandsaw::runner
