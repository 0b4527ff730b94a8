// One guest process and its runner.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/session/processes.h"

namespace bandsaw {

// Whether another session made it as an arena of this length: it cannot shrink, and reading it takes no more than
// memory.
Status check_arena(int fd, uint64_t bytes);
// Whether it is a file in memory that holds all of these pages now. Who shrinks it later takes pages away from a
// runner, which ends that one's guest process alone.
Status check_memory_file(int fd, std::span<const vgpu_segment> segments);

class Process : public std::enable_shared_from_this<Process> {
 public:
  using Answer = Processes::Answer;
  // `arena`: of direct mode; empty: a new one.
  Process(Processes* owner, const Request& create, UniqueFd arena);
  ~Process();  // asks a runner that it still has to end

  void start(const Answer& answer);
  // One that was in another session. Its mappings follow, and all_announced(); it is away from then on.
  void come_back(const Request& request, const Answer& answer);
  void all_announced(const Answer& answer);
  // Its device goes, and it comes back: ends here, where all that it had is in a file, which is kept for it.
  void leave(const Answer& answer);
  // `file`: whose pages a region has, in direct mode; empty: guest RAM or the arena.
  void add_mapping(const Request& request, UniqueFd file, const Answer& answer);
  void drop_mapping(const Request& request, const Answer& answer);
  void kick(const Answer& answer);
  void ping(const Answer& answer) const;
  // Among the processes of its virtual GPU; the arbiter hears of it with its next ask.
  void set_nice(int32_t nice);
  // Ends it; `done` when its runner is reaped.
  void end(Runner::Stop how, std::function<void()> done);

  void add_ram(const Ram& ram);
  bool uses(uint32_t ram) const;
  void remove_ram(uint32_t ram, std::function<void()> done);

  bool lost() const { return state_ == State::kLost; }
  // Its runner has ended, and what that had is in a file. Requests wait.
  bool away() const { return state_ == State::kAway; }
  const ReturnKey& key() const { return key_; }  // zeros: it cannot come back
  // Of its pages, what another runner could not be given, in words; empty: nothing.
  std::string lacks() const;
  // Takes another runner, at a standstill, with all rings and regions. Then that becomes what the old one was, and
  // revived() says whether it has; if not, it is ended.
  void revive(const std::function<void(Result<Runner*>)>& done);
  void revived(bool well);
  nlohmann::json status() const;
  std::optional<ProcessSlot> slot() const;  // while it has a runner

 private:
  enum class State { kStarting, kRunning, kEnding, kLost, kAway, kReturning };
  struct Mapping {
    uint64_t va = 0, bytes = 0;
    uint32_t segments = 0;
    uint64_t generation = 0;  // tells it from a later one with the same id
    bool in_window = false;
    bool dropping = false;
    std::vector<uint32_t> rams;
    uint32_t flags = 0;
    std::vector<RunnerSegment> pieces;  // where it may be needed again
  };
  using Mappings = std::map<uint32_t, Mapping>;

  void assign(Runner* runner, const Answer& answer);
  Status take_slot(Runner* runner);
  void send_assignment(Runner::Done done);
  void take_again(Runner* runner, const std::function<void(Result<Runner*>)>& done);
  void send_mappings(const Runner::Done& done);
  bool may_be_away() const;
  void wait_for_runner(std::function<void()> request, const Answer& answer);
  // The same request, later.
  std::function<void()> add_again(const Request& request, UniqueFd file, const Answer& answer);
  std::function<void()> drop_again(const Request& request, const Answer& answer);
  GuestOwner owner() const;
  Status make_descriptors();
  void answer_ready(const Answer& answer) const;
  void set_away(bool is);
  void assigned(int error, const Answer& answer);
  void gone();
  Status usable(const char* what) const;
  Status check_room(const Request& request) const;
  Status check_window(const Request& request, bool file) const;
  // The pieces of RAM for the runner, which must know `file` while it maps them.
  Result<Translation> translate(const Request& request, const UniqueFd& file);
  void send_file(const UniqueFd& file);
  Mapping* find(bool is_ring, uint32_t id, uint64_t generation);
  void forget(bool is_ring, uint32_t id, uint64_t generation);
  Mappings& mappings(bool is_ring) { return is_ring ? rings_ : regions_; }
  // Sends and answers with what the runner says; `then` runs before the answer. A runner that ends without an answer,
  // and is followed by another one, leaves the request to `again`, for that one.
  void forward(const RunnerMessage& message, std::span<const std::byte> tail, const Answer& answer,
               std::function<void(Process*, int error)> then, std::function<void()> again);

  Processes* owner_;  // outlives it
  const uint32_t id_;
  const vgpu_ctl_create_process who_;
  const uint32_t taken_bases_;  // where its address window cannot lie
  ReturnKey key_{};
  State state_ = State::kStarting;
  Runner* runner_ = nullptr;
  int slot_ = -1;
  int32_t nice_ = 0;
  int pid_ = 0;               // of its runner, also when that has ended; 0: it had none in this session
  uint64_t window_base_ = 0;  // of the same
  bool files_ = false;        // it has regions of files, which are not kept
  uint64_t kept_pieces_ = 0;
  bool left_ = false;                         // it comes back, here or elsewhere
  Answer leaving_;                            // waits for its runner's end
  std::vector<std::function<void()>> later_;  // requests that wait for another runner
  UniqueFd kick_, wake_, arena_;
  EventPtr wake_event_, start_timer_;
  Mappings rings_, regions_;
  std::map<uint64_t, uint64_t> window_;  // in-window regions: address -> end
  uint64_t segments_ = 0, next_generation_ = 1;
  uint32_t outstanding_ = 0;
  std::vector<std::function<void()>> when_gone_;
};

}  // namespace bandsaw
