// A kernel launch as a job: its blocks are tickets, taken by the workers in order.
//
// A fiber runs the warps of a block one after another. When one waits (at a barrier, or spinning), the rest of the
// block goes on in a further fiber; so a kernel that never waits needs one fiber a worker, and costs no switches.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/device/soft/executor.h"
#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

class BlockRunner;
class KernelJob;
class LaunchRecording;
class LaunchServices;
class ChildWork;
class SoftContext;
class SoftDevice;

// The warps of one block shape, with what does not change from block to block.
struct BlockShape {
  uint32_t block[3];
  uint32_t threads;
  std::vector<WarpState> warps;
};
std::shared_ptr<const BlockShape> make_block_shape(const uint32_t (&block)[3]);

// Everything about one launch; immutable while it runs.
struct LaunchPlan {
  KernelEntry entry = nullptr;
  std::string kernel;
  std::shared_ptr<void> code;  // keeps the compiled code
  std::shared_ptr<const BlockShape> shape;
  uint32_t grid[3]{1, 1, 1};
  uint32_t shared_bytes = 0, dynamic_shared_bytes = 0, local_bytes = 0;
  uint32_t stack_bytes = 0;      // of local_bytes
  bool reserved_shared = false;  // it uses that beside its own
  uint32_t parameter_bytes = 0;
  bool cooperative = false;
  uint32_t cluster[3]{1, 1, 1};  // divides the grid
  bool explicit_cluster = false;
  int priority = 0;
  uint64_t window_base = 0;
  uint64_t grid_workspace = 0;
  std::shared_ptr<void> workspace;  // gives that back
  uint32_t sms = 1;
  uint32_t workers = 0;               // that may be in it at a time; 0: all
  uint32_t waiting_blocks = 0;        // that a worker keeps in flight at most if they spin
  std::vector<std::byte> parameters;  // its first byte is aligned to 16 by the allocator
  LaunchServices* services = nullptr;
  // For kernels that launch kernels: by whom, in what, and how many launches deep this one is. `code` is a LoadedImage.
  SoftDevice* device = nullptr;
  std::weak_ptr<SoftContext> context;
  uint32_t depth = 0;
  bool by_kernel = false;  // launched by one
  const TextureTable* textures = nullptr;
  std::shared_ptr<LaunchRecording> recording;  // null: nothing is recorded
  uint64_t blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
  uint32_t cluster_blocks() const { return cluster[0] * cluster[1] * cluster[2]; }
  uint64_t clusters() const { return blocks() / cluster_blocks(); }  // what workers take
};

// What compiled code may ask for beside computing: output, heap, host memory. One a context.
class LaunchServices {
 public:
  virtual ~LaunchServices() = default;
  virtual void print(std::string text) = 0;
  virtual uint64_t heap_alloc(uint64_t bytes) = 0;
  virtual void heap_free(uint64_t address) = 0;
  virtual void* visible_host(uint64_t address, uint64_t bytes) = 0;
};

struct Barrier {
  uint32_t arrived = 0;   // threads
  uint32_t expected = 0;  // threads; 0: all living ones of the block
  uint32_t trues = 0, votes = 0;
  Fiber* first = nullptr;  // who waits, in order
  Fiber* last = nullptr;
};

inline constexpr uint32_t kNamedBarriers = 16, kWarpgroups = 8;  // those that programs name; at most in a block
inline constexpr uint32_t kBarriers = kNamedBarriers + kWarpgroups;

// Blocks that may reach each other's shared memory; all in flight on one worker until the last has ended.
struct ClusterState {
  std::vector<BlockState*> blocks;  // by rank
  std::vector<std::byte*> shared;
  uint32_t ended_blocks = 0;
  // barrier.cluster: threads that have arrived in this phase, warps that wait for its end.
  uint32_t arrived = 0, phase = 0;
  Fiber* first = nullptr;
  Fiber* last = nullptr;
};

// A warp's arrival at the cluster's barrier.
struct ClusterArrival {
  uint32_t phase = 0;
  uint32_t lanes = 0;  // how many, of a phase that has not ended
};

// One block in flight.
struct BlockState {
  BlockRunner* runner = nullptr;
  std::vector<WarpState> warps;
  std::vector<uint8_t> counted;  // living lanes of each warp as last counted
  std::byte* shared = nullptr;
  uint32_t ctaid[3]{};
  uint32_t next_warp = 0, ended_warps = 0, waiting_warps = 0;
  uint32_t living = 0;  // threads
  uint64_t ticket = 0;
  std::array<Barrier, kBarriers> barriers;
  ClusterState* cluster = nullptr;  // null: a launch without clusters
  uint32_t cluster_waits = 0;       // warps that wait at its barrier
  std::vector<ClusterArrival> cluster_arrivals;
};

class KernelJob : public Job, public std::enable_shared_from_this<KernelJob> {
 public:
  // `finished` gets the launch's error or CUDA_SUCCESS.
  using Finished = std::function<void(uint32_t error)>;
  KernelJob(LaunchPlan plan, uint64_t grid_id, Finished finished);
  ~KernelJob() override;

  const LaunchPlan& plan() const { return plan_; }
  uint64_t grid_id() const { return grid_id_; }
  const volatile uint32_t* cancel_word() const { return reinterpret_cast<const volatile uint32_t*>(&cancelled_); }
  // The first error counts; cancels the rest of the launch. Any worker.
  void fail(uint32_t error, const std::string& text);

  // What its threads have queued, made when the first asks. nullptr: this launch takes none.
  ChildWork* children();
  bool has_children() const { return children_ != nullptr; }  // when it has ended

  std::unique_ptr<Share> share(Worker& worker) override;
  void finished() override;

 private:
  const LaunchPlan plan_;
  const uint64_t grid_id_;
  Finished finished_;
  std::mutex mutex_;
  uint32_t error_ = 0;
  std::unique_ptr<ChildWork> children_;  // made under mutex_
};

// A worker's blocks of one launch.
class BlockRunner : public Share {
 public:
  BlockRunner(KernelJob& job, Worker& worker);
  ~BlockRunner() override;
  Turn run(Worker& worker) override;
  bool holds_work() const override { return in_flight_ != 0 || tickets_ != 0; }

  KernelJob& job() { return job_; }
  Worker& worker() { return worker_; }

  // For the functions that compiled code calls, on the running fiber.
  void wait_here(BlockState& block);   // suspends it until wake()
  void wake(Fiber* fiber);             // it may go on
  void go_last();                      // behind those that may go on
  void yield_here(BlockState& block);  // suspends it; it may go on at once
  // barrier.cluster of warp `index` (cluster.cc).
  void cluster_arrive(BlockState& block, uint32_t index, uint32_t lanes);
  void cluster_wait(BlockState& block, uint32_t index);
  [[noreturn]] void leave();  // ends the turn; the launch was cancelled or failed

 private:
  static void fiber_body(void* fiber);
  void run_warps(Fiber* fiber, BlockState& block);
  bool next_block(BlockState& block);
  bool start_block();
  bool start_fiber(BlockState& block);
  void begin(BlockState& block, uint64_t number);
  // Of launches in clusters (cluster.cc).
  bool start_cluster();
  void begin(ClusterState& cluster, uint64_t number);
  bool next_in_cluster(BlockState& block);
  static void join_cluster(BlockState& block);
  void make_cluster_of_one(BlockState& block);
  void cluster_warp_ended(BlockState& block, uint32_t index);
  void end_cluster_phase(ClusterState& cluster);
  ClusterState* get_cluster();
  void resume(Fiber* fiber);
  void switch_away(Fiber* self);
  void check_barriers(BlockState& block);
  void check_deadlock(BlockState& block);
  void report_deadlock(const BlockState& block);
  void drop_all();
  void report_fault();
  bool reserve_ticket();
  uint64_t next_ticket();  // of those reserved
  BlockState* get_block();
  BlockState* make_block();
  void push(Fiber* fiber);
  Fiber* pop();

  KernelJob& job_;
  Worker& worker_;
  uint64_t ticket_ = 0, tickets_ = 0;  // taken, not started
  uint64_t batch_ = 1;
  uint32_t in_flight_ = 0, limit_;  // blocks, or clusters
  uint32_t spins_ = 0;              // yields since something moved
  bool yielded_ = false;
  Fiber* first_ = nullptr;  // fibers that may go on
  Fiber* last_ = nullptr;
  std::vector<Fiber*> fibers_;  // all that this runner took
  std::vector<Fiber*> idle_;
  std::vector<std::unique_ptr<BlockState>> blocks_;
  std::vector<BlockState*> free_blocks_;
  std::vector<std::unique_ptr<ClusterState>> clusters_;
  std::vector<ClusterState*> free_clusters_;
};

// The state of barrier `id` when all have arrived or nobody is left to: wakes who waits. Used by bandsaw_barrier.
void complete_barrier(BlockRunner& runner, BlockState& block, Barrier& barrier, uint32_t* trues, uint32_t* votes);

}  // namespace bandsaw::soft
