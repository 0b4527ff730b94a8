// What the handles of a guest process stand for on an NVIDIA GPU. Each object owns its driver handle; one whose context
// is gone gives nothing back, because the driver did so already.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/device/cuda/charge.h"
#include "backend/device/cuda/driver.h"
#include "backend/device/cuda/legacy_order.h"
#include "backend/device/cuda/spin_lock.h"
#include "backend/device/cuda/stream_stock.h"
#include "backend/device/device.h"

namespace bandsaw::cuda {

using DriverRef = std::shared_ptr<const Driver>;

// How much may have been put on the streams of a context, and how much of that is known to be done.
class WorkCount {
 public:
  // `before`: nobody knows what came before this counts.
  explicit WorkCount(bool before) : count_(before ? 1 : 0) {}
  void add() { count_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  // All that was counted up to there is done.
  void finish(uint64_t count) {
    uint64_t known = finished_.load(std::memory_order_relaxed);
    while (known < count && !finished_.compare_exchange_weak(known, count, std::memory_order_relaxed)) {
    }
  }
  bool finished() const { return finished_.load(std::memory_order_relaxed) == count(); }

 private:
  std::atomic<uint64_t> count_, finished_{0};
};

// One life of a context: after a reset, the primary context's handle belongs to another object.
class CudaContext final : public Context {
 public:
  // One of a part of the GPU's SMs, over the context that is all of them.
  struct Green {
    CUgreenCtx handle = nullptr;
    std::shared_ptr<CudaContext> base;
    DriverRef driver;
  };
  CudaContext(CUcontext context, bool is_primary) : CudaContext(context, is_primary, Green{}) {}
  CudaContext(CUcontext context, bool is_primary, Green part);
  // Whose modules, events and arrays they are that were made with this one: as long as that is alive they have to be
  // given back.
  CudaContext& owner() { return base ? *base : *this; }
  const CUcontext handle;
  const uint64_t id;              // never used twice; the driver does give a destroyed context's handle to a new one
  const bool primary;             // the process's primary context, made ahead
  std::atomic<bool> alive{true};  // false once it was destroyed or reset
  const CUgreenCtx green;         // null: it has all SMs
  const std::shared_ptr<CudaContext> base;   // of a green one
  const std::unique_ptr<LegacyOrder> order;  // of a green one
  std::shared_ptr<StreamStock> stock;        // null: it has none; set before anybody else knows the context
  WorkCount work{true};
  // Of that: on streams which the legacy one does not wait for, on those that it stands for, and on itself.
  WorkCount apart{false}, blocking{false}, legacy{false};
  std::mutex mutex;
  Charge charge;  // guarded by mutex: what it takes, while the guest has it
};
using CudaContextRef = std::shared_ptr<CudaContext>;

// Makes a context current in this thread, if it is not.
CUresult make_current(const Driver& driver, const CudaContext& context);
// For calls of the driver that have changed it on their own.
void forget_current();

class CudaStream final : public Stream {
 public:
  // `in_no_order`: the legacy stream does not wait for it.
  CudaStream(DriverRef driver, CUstream stream, CudaContextRef in_context, bool owned, bool in_no_order = false,
             std::shared_ptr<LegacyOrder::Blocking> ordered = nullptr)
      : handle(stream),
        context(std::move(in_context)),
        apart(in_no_order),
        blocking(std::move(ordered)),
        driver_(std::move(driver)),
        owned_(owned) {}
  ~CudaStream() override { destroy(); }
  CUresult destroy();

  const CUstream handle;
  const CudaContextRef context;
  const bool apart;
  const std::shared_ptr<LegacyOrder::Blocking> blocking;  // null: its context keeps its order, or it has none
  mutable WorkCount work{true};                           // that the program put on it
  // Where it goes when it is destroyed, and its flags there; null: it ends. Set before anybody else knows it.
  std::shared_ptr<StreamStock> stock;
  unsigned stock_flags = 0;

 private:
  const DriverRef driver_;
  std::atomic<bool> owned_;
};

class CudaEvent final : public Event {
 public:
  CudaEvent(DriverRef driver, CUevent event, CudaContextRef in_context)
      : handle(event), context(std::move(in_context)), driver_(std::move(driver)) {}
  ~CudaEvent() override { destroy(); }
  CUresult destroy();

  // What it stands behind on the stream that recorded it last: whoever has seen the event has seen the end of that.
  struct Place {
    std::weak_ptr<CudaStream> stream;
    uint64_t work = 0, records = 0;
  };
  // Before it is recorded, and after.
  Place recording(const std::shared_ptr<CudaStream>& stream);
  void recorded(const Place& place);
  // Before it is asked for, and after it was said to be reached.
  Place place() const;
  void reached(const Place& place) const;

  const CUevent handle;
  const CudaContextRef context;
  std::atomic<int64_t> age_ns{0};  // that it has beside what the driver knows: it was recorded in another process

 private:
  const DriverRef driver_;
  std::atomic<bool> owned_{true};
  mutable SpinLock lock_;
  Place place_;  // guarded by lock_
};

// The parameters of a kernel, in order.
using Parameters = std::vector<vgpu_parameter>;

class ManagedCode;

class CudaLibrary final : public Library {
 public:
  CudaLibrary(DriverRef driver, CUlibrary library, std::shared_ptr<ManagedCode> code = nullptr)
      : handle(library), managed(std::move(code)), driver_(std::move(driver)) {}
  ~CudaLibrary() override;
  CUresult unload();

  std::atomic<CUlibrary> handle;               // null until all managed variables have their places
  std::atomic<bool> used{false};               // a kernel or variable of it was asked for
  const std::shared_ptr<ManagedCode> managed;  // null: it has no managed variables
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<Kernel>> kernels;  // guarded by mutex
  Charge code_charge, managed_charge;                              // guarded by mutex

 private:
  const DriverRef driver_;
  std::atomic<bool> loaded_{true};
};

class CudaModule final : public Module {
 public:
  CudaModule(DriverRef driver, CUmodule module, CudaContextRef in_context)
      : handle(module), context(std::move(in_context)), driver_(std::move(driver)) {}
  ~CudaModule() override;
  CUresult unload();

  const CUmodule handle;
  const CudaContextRef context;
  std::atomic<bool> used{false};  // a function or variable of it was asked for
  Charge code_charge;             // belongs to whoever loads and then to whoever unloads it

 private:
  const DriverRef driver_;
  std::atomic<bool> loaded_{true};
};

class CudaKernel final : public Kernel {
 public:
  CUkernel handle = nullptr;
  std::shared_ptr<CudaLibrary> library;
  Parameters parameters;
};

class CudaFunction final : public Function {
 public:
  CUfunction handle = nullptr;
  CudaContextRef context;
  std::shared_ptr<Object> owner;  // the module or kernel it belongs to
  Parameters parameters;
};

// A host function of the program with what is needed to run it; lives until nothing can call it any more.
struct HostFunction {
  DeviceHost* host = nullptr;
  HostCallback callback;
};

class CudaGraph;

class CudaNode final : public Node {
 public:
  CUgraphNode handle = nullptr;
  std::weak_ptr<CudaGraph> graph;
  CUgraph child = nullptr;              // of a child graph node, as soon as somebody looks
  std::shared_ptr<HostFunction> host;   // of a host node
  EventRef event;                       // of an event node
  NodeRef original;                     // where the driver does not know what it is a copy of
  PoolRef pool;                         // of an allocation node
  vgpu_conditional_node conditional{};  // of a conditional node, with the graphs that the driver made for it
  std::vector<CUgraph> bodies;
};
using CudaNodeRef = std::shared_ptr<CudaNode>;

class CudaGraph final : public Graph {
 public:
  CudaGraph(DriverRef driver, CUgraph graph, bool is_owned)
      : handle(graph), owned(is_owned), driver_(std::move(driver)) {}
  ~CudaGraph() override;
  // A function that its nodes call; those of its nodes' graphs and of the nodes that are copies of another's.
  void keep(std::shared_ptr<HostFunction> function);
  void keep_functions_of(CudaGraph& other);
  bool has_functions();
  // `inner` is a graph that the driver has within `outer`, for a node, and lives as long. Who has what this returns has
  // both of them; `outer` itself must not.
  static std::shared_ptr<CudaGraph> within(const std::shared_ptr<CudaGraph>& outer, std::shared_ptr<CudaGraph> inner);
  // Its handle, and those of the graphs within it.
  std::vector<CUgraph> with_inner();

  const CUgraph handle;
  std::atomic<bool> owned;  // false: one that is still captured, or is within another graph
  std::mutex mutex;
  std::unordered_map<CUgraphNode, CudaNodeRef> nodes;  // guarded by mutex; those that somebody has looked at
  std::set<uint64_t> conditions;                       // handles that no node has yet; guarded by mutex
  std::weak_ptr<CudaGraph> copy_of;                    // set before anybody else knows it
  std::atomic<bool> originals_known{false};            // its nodes know what they are copies of

 private:
  using Functions = std::set<std::shared_ptr<HostFunction>>;
  void add_functions_to(Functions* all);

  const DriverRef driver_;
  // What its nodes point to, in copies of them that the driver made too. Functions alone, and no graphs: graphs that
  // keep each other never end.
  Functions functions_;                            // guarded by mutex
  std::vector<std::shared_ptr<CudaGraph>> inner_;  // guarded by mutex; also those whose nodes have others by now
  std::atomic<bool> is_inner_{false};              // the driver destroys it with the one that it is within
};
using CudaGraphRef = std::shared_ptr<CudaGraph>;

class CudaExec final : public Exec {
 public:
  CudaExec(DriverRef driver, CUgraphExec exec, CudaContextRef in_context)
      : handle(exec), context(std::move(in_context)), driver_(std::move(driver)) {}
  ~CudaExec() override;
  // What it is made of from now on, or may call.
  void keep(const std::shared_ptr<CudaGraph>& graph);
  void keep(std::shared_ptr<HostFunction> function);
  // All of that, for a launch: it may go on when this is gone. Null: it calls no host functions.
  std::shared_ptr<void> functions() const { return calls_host_ ? keeps_ : nullptr; }

  const CUgraphExec handle;
  const CudaContextRef context;
  std::atomic<uint64_t> mapped_at{0};  // GraphMemory's count of trims when its memory was there
  std::mutex mutex;
  // For another process: what it does, as a graph of its own, whose nodes are known by those that it was made from.
  // Guarded by mutex.
  std::shared_ptr<CudaGraph> copy;  // null: none is kept, or it is not known what this does
  std::map<const Node*, std::pair<std::weak_ptr<Node>, NodeRef>> twins;
  std::set<const Node*> disabled;  // of the copy
  uint64_t flags = 0;

 private:
  const DriverRef driver_;
  std::atomic<bool> calls_host_{false};
  using Keeps = std::vector<std::shared_ptr<void>>;                 // functions, and graphs with theirs
  const std::shared_ptr<Keeps> keeps_ = std::make_shared<Keeps>();  // what is in it is guarded by mutex
};

inline const CudaContextRef as(const ContextRef& context) { return std::static_pointer_cast<CudaContext>(context); }
inline CudaStream& as(const StreamRef& stream) { return static_cast<CudaStream&>(*stream); }
inline CudaEvent& as(const EventRef& event) { return static_cast<CudaEvent&>(*event); }
inline CudaGraph& as(const GraphRef& graph) { return static_cast<CudaGraph&>(*graph); }
inline CudaNode& as(const NodeRef& node) { return static_cast<CudaNode&>(*node); }
inline CudaExec& as(const ExecRef& exec) { return static_cast<CudaExec&>(*exec); }
inline CudaLibrary& as(const LibraryRef& library) { return static_cast<CudaLibrary&>(*library); }
inline CudaModule& as(const ModuleRef& module) { return static_cast<CudaModule&>(*module); }
inline CudaKernel& as(const KernelRef& kernel) { return static_cast<CudaKernel&>(*kernel); }
inline CudaFunction& as(const FunctionRef& function) { return static_cast<CudaFunction&>(*function); }

}  // namespace bandsaw::cuda
