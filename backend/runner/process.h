// One guest process on the host: its device, memory, handles and command rings.
//
// Errors of asynchronous calls surface in three ways. Sticky ones (errors.h, and a record that breaks the protocol)
// end the process's use of the device: they stand in every ring's header and every later call returns them. Others
// go into the done word that the call names; without one they are kept, the first per ring, and the next
// synchronising call of that ring that would succeed returns the error instead, once.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "backend/runner/execution/copy_pieces.h"
#include "backend/runner/execution/gate.h"
#include "backend/runner/execution/graph_segments.h"
#include "backend/runner/execution/worker_pool.h"
#include "backend/runner/guard/kernel_guard.h"
#include "backend/runner/handlers/handlers.h"
#include "backend/runner/saved/process_state.h"
#include "backend/runner/slicing/launch_pointers.h"
#include "backend/runner/slicing/slicer.h"
#include "backend/runner/standstill.h"
#include "backend/runner/swap/swapper.h"
#include "backend/runner/wire/device_section.h"
#include "backend/runner/wire/waiting_records.h"

namespace bandsaw::runner {

// A record that was taken out of a ring and not executed, in another runner.
using AgainRecord = std::pair<CommandRingRef, Record>;

class Process final : public DeviceHost {
 public:
  using MakeDevice = std::function<Result<std::unique_ptr<Device>>(DeviceHost* host)>;

  // `window` and `clock` must outlive this. Makes the device at once, so that a guest need not wait for it.
  static Result<std::unique_ptr<Process>> make(const Reservation* window, const MakeDevice& make_device,
                                               const SlicingSettings& slicing = {},
                                               const Clock* clock = &Clock::system());
  ~Process() override;

  // How threads of the guest are woken; before the first ring.
  void set_waker(std::unique_ptr<Waker> waker) { waker_ = std::move(waker); }
  // Says whether rings hold more records; called on the thread that executes them. Set before the first record.
  void set_others_wait(std::function<bool()> others_wait) { others_wait_ = std::move(others_wait); }
  // Has whoever executes records look for them until then; called by any thread, and once this has returned no more.
  void set_expect_calls(std::function<void(std::chrono::steady_clock::time_point)> expect);
  // What the guest is told that its device is; before the first ring.
  void set_identity(VgpuIdentity identity) { identity_ = std::move(identity); }
  void set_guard(const GuardSettings& settings) { guard_settings_ = settings; }
  // What small objects cost, on a GPU or on the software device; before the first one.
  void set_object_prices(bool on_gpu) { objects_->table().set_prices(on_gpu, this, &usage_page_); }
  // Where in the window device memory lies, and what handles say; before the first ring.
  Status use_part(uint32_t part);
  // Kernels are guarded from now on; after use_part(), with the usage page, before the first ring.
  Status start_guard();
  UsagePageView& usage_page() { return usage_page_; }
  Swapper& swapper() { return swapper_; }
  GateView& gate() { return gate_; }
  GuestMemory& memory() { return *memory_; }
  ExchangeClient& exchange() { return exchange_; }
  Standstill& standstill() { return standstill_; }
  CallbackQueue& callbacks() { return callbacks_; }
  // The thread that executes records is within it while it calls the device, or waits for that.
  DeviceSection& device_section() { return device_section_; }
  // All of its device memory goes to host memory, or back to where it was. Only at_rest(). An errno.
  int move_memory(bool to_device);
  // What has left the device; nothing: it cannot be reached. Only at_rest().
  std::optional<std::vector<AwayMemory>> memory_away() { return device_->memory_away(); }
  // Only at_rest(), as the next two: all that another runner must know to become what this one is, but for memory and
  // the place in the order of records. Returns what cannot go there, in a word; empty: nothing.
  std::string describe(ProcessState* state);
  // Makes all objects of what another runner has described, with the same handles and addresses. Before any call.
  Status make_again(const ProcessState& state);
  // The rings, which are all here, go on where they were; `again`: records that were taken out of them and not
  // executed. Nobody takes any yet.
  Status go_on(const ProcessState& state, std::vector<AgainRecord>* again);
  void device_info(vgpu_device_info* info) { device_->info(info); }

  // Makes a ring; the record loop is told by the caller.
  // `goes_on`: as CommandRing's.
  Result<CommandRingRef> add_ring(uint32_t id, uint64_t va, uint32_t flags, std::span<const RunnerSegment> segments,
                                  bool goes_on = false);
  void forget_ring(uint32_t id);

  // Executes a record that is next in order, or answers it with the error that the process has, or lets it wait behind
  // one that waits at a gate. May take the record's bytes. Called by one thread at a time, as the next four.
  void execute(const CommandRingRef& ring, Record& record);
  // Answers the guest's poll for host functions. Another thread may call it beside all else but work on the same ring.
  void answer_poll(const CommandRingRef& ring, const Record& record);
  const WaitingRecords& waiting() const { return waiting_; }
  const Slicer& slicer() const { return *slicer_; }
  const CopyPieces& pieces() const { return pieces_; }
  // Records, grid slices of a launch, pieces of a copy, or what they asked for wait at a gate.
  bool waits_at_gate() const {
    return at_gate_ || at_compiler_ || at_word_ || at_swapper_ || slicer_->at_gate() || pieces_.at_gate() ||
           unsettled_ || standstill_.wanted();
  }
  // What waits at a gate waits for the end of this process's own time slices, and for nothing else.
  bool waits_for_own_end() const {
    return (at_gate_ || slicer_->at_gate() || pieces_.at_gate()) && !at_compiler_ && !at_word_ && !at_swapper_ &&
           !unsettled_ && !standstill_.wanted() && !gate_.kept_out();
  }
  // The ring's work has not all been executed.
  bool holds(const CommandRing& ring) const {
    return ring.waiting != 0 || slicer_->holds(ring) || pieces_.holds(&ring);
  }
  // Work whose first part was executed is still to be issued.
  bool busy() const { return slicer_->busy() || pieces_.busy(); }
  // Executes records that wait, as far as the gates and what is under way allow; whether that was anything.
  // `ahead`: some were executed before others that are still in the rings, so that these have to be as well.
  bool pass_waiting(bool ahead = false);
  // For when nothing else is to be done: sleeps until a gate may have opened, a kernel may have been compiled, or a
  // word may have changed, but no longer than this.
  void wait_at_gate(std::chrono::nanoseconds most);
  // The guest broke the protocol: logs once and poisons the process. Any thread.
  void protocol_error(const std::string& why);
  // All calls of the guest process return this from now on, unless they return another error already. Any thread.
  void fail(CUresult error);
  bool poisoned() const { return sticky_.load(std::memory_order_relaxed) != CUDA_SUCCESS; }
  // After a broken record the order of sequence numbers means nothing any more.
  bool protocol_broken() const { return protocol_broken_.load(std::memory_order_relaxed); }

  // DeviceHost
  void run_callback(const HostCallback& callback, CUresult status, Done done) override;
  void poisoned(CUresult error) override;
  CUresult guard_error() override;
  void print(std::string_view text) override { output_.print(text); }
  void compiling(uint32_t kernels) override;
  bool charge_memory(int64_t bytes) override { return swapper_.book().charge_fixed(bytes); }
  swap::Book* swap_book() override { return &swapper_.book(); }
  void pace_context() override { usage_page_.pace_context(); }
  void charge_time(int engine, uint64_t nanoseconds, uint64_t bytes) override {
    usage_page_.count_time(engine, nanoseconds, bytes);
  }
  bool others_wait() override { return !others_wait_ || others_wait_(); }
  void expect_calls(std::chrono::steady_clock::time_point latest) override;
  void* visible_host(uint64_t guest_address, uint64_t bytes) override {
    return memory_->visible_host(guest_address, bytes);
  }

 private:
  Process(std::unique_ptr<GuestMemory> memory, const Clock* clock)
      : gate_(clock), swapper_(&usage_page_, clock), standstill_(&gate_, clock), memory_(std::move(memory)) {}
  bool begin(const CommandRingRef& ring, const Record& record, wire::CheckedRecord* checked);
  bool pass_gate(const CommandRingRef& ring, const wire::CheckedRecord& record);
  bool pass_gate(unsigned engine, const std::optional<Bulk>& bulk, uint64_t units, uint64_t stream);
  bool passed_gate(unsigned engine, bool open);
  double part_of_device(const vgpu_launch& launch) const;
  bool pass_gates(const ExecRef& exec, const LaunchId& id);
  std::optional<Bulk> bulk_of(const ExecRef& exec);
  bool pass_queue(bool passed);
  bool some_may_pass() const;
  bool pass_others();
  void perform_waiting(size_t at);
  void perform(const CommandRingRef& ring, const wire::CheckedRecord& record, std::vector<std::byte>& bytes);
  void refuse(const CommandRingRef& ring, const wire::CheckedRecord& record, CUresult error);
  CUresult run(const CommandRingRef& ring, const wire::CheckedRecord& record);
  // saved/process_saved.cc
  bool lives(uint64_t number) const;
  bool awaits_compiler(const wire::CheckedRecord& record);
  std::string cannot_go(ProcessState* state) const;
  bool texture_can_go(const wire::CheckedRecord& record) const;
  void load_kernels(const wire::CheckedRecord& record);
  std::string rings_state(ProcessState* state);
  std::vector<CodeAgain> loaded_code(const ProcessState& state, std::vector<uint64_t>* handles) const;
  std::string take_along(ProcessState* state);
  Status expect_along(const ProcessState& state);
  Status make_call(const JournalEntry& entry);
  void add_heap(uint64_t handle, ProcessState* state) const;
  Status make_heap(uint64_t handle, const HeapAgain& heap);

  VgpuIdentity identity_;
  uint32_t part_ = 0;
  UsagePageView usage_page_;
  GateView gate_;
  ApartStreams apart_;
  StreamOrder order_{&apart_};
  CopyPieces pieces_{&gate_, &order_};
  WaitingRecords waiting_{&order_, &apart_};
  uint32_t shared_sms_ = 0;   // of a client of MPS, the device's SMs; else 0
  bool at_gate_ = false;      // waiting records wait there
  bool at_compiler_ = false;  // or for their kernels
  bool at_word_ = false;      // or for a word of the guest's
  bool at_swapper_ = false;   // or for memory that is to move
  bool unsettled_ = false;    // the process has failed, and asked for a time slice before
  Swapper swapper_;
  Standstill standstill_;
  DeviceSection device_section_;
  Output output_;
  CallbackQueue callbacks_;
  ExchangeClient exchange_;
  std::unique_ptr<GuestMemory> memory_;
  std::unique_ptr<Waker> waker_;
  std::function<bool()> others_wait_;
  std::mutex expect_mutex_;
  std::function<void(std::chrono::steady_clock::time_point)> expect_calls_;  // guarded by expect_mutex_
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
  std::atomic<bool> protocol_broken_{false};
  std::mutex rings_mutex_;
  std::map<uint32_t, CommandRingRef> rings_;  // guarded by rings_mutex_
  std::unique_ptr<Device> device_;            // calls the members above until it is gone
  GuardSettings guard_settings_;
  std::unique_ptr<KernelGuard> guard_;  // null: kernels are not guarded
  std::unique_ptr<Slicer> slicer_;
  std::unique_ptr<Objects> objects_;
  std::unique_ptr<Journal> journal_;  // null: the device gives no address again
  std::unique_ptr<GraphSegments> segments_;
  std::unique_ptr<Handlers> handlers_;
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<LaunchPointers> launch_pointers_;
};

}  // namespace bandsaw::runner
