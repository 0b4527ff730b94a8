// Keeps the session process of one virtual GPU running: starts it, adopts one that outlived an earlier vgpud, starts it
// again with growing pauses when it dies, and ends it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/vgpud/sessions/session_manager.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class SessionSupervisor : public std::enable_shared_from_this<SessionSupervisor> {
 public:
  // What the session is told beside its shares.
  using SharingConfigOf = std::function<nlohmann::json(const VgpuSpec& spec)>;
  // `gpu`, that of the spec, and `cgroups` outlive this; `cgroups` null: there are none. `on_news` is called when
  // has_news() has become true, or the spec has changed.
  SessionSupervisor(event_base* base, const Config& config, const VgpuSpec& spec, const Gpu& gpu,
                    const CgroupTree* cgroups, SharingConfigOf sharing_config_of, std::function<void()> on_news);
  ~SessionSupervisor();

  void start(SessionManager::Ready ready);
  // Also removes the folder under STATE when `forget`. `gone` is called once.
  void stop(bool forget, std::function<void()> gone);
  void keep_log() { keep_log_ = true; }  // when it is stopped, as failed_log()
  void update(const VgpuSpec& spec);
  // The same with another device, `gpu`. EBUSY: the session refuses, and the old device is to be said again.
  void move(const VgpuSpec& spec, const Gpu& gpu, SessionManager::Ready moved);
  void tell();  // the session, what has changed
  void set_hold(SessionManager::Hold hold, uint64_t bytes);
  // Once it is suspended, its contexts are to stay on the GPU. It is told with the next that it is told.
  void set_contexts_stay(bool stay) { contexts_stay_ = stay; }
  // Its session is idle: its programs may have so many bytes in the host's memory, and nothing on the device, until the
  // next call.
  void sleep(uint64_t bytes);
  // So many bytes lie there, as its session says.
  void set_asleep(uint64_t bytes);
  // The same of single processes, which their programs have checkpointed.
  void set_checkpointed(uint64_t bytes);
  // In the log. `error`: why it could not come back.
  void note_sleep(bool asleep, uint64_t bytes, const std::string& error);
  // Nothing of what it had on the device lies in the host's memory: a file has it.
  void set_saved(bool saved) { saved_ = saved; }
  bool saved() const { return saved_; }
  void set_restored(uint64_t bytes) { restored_bytes_ = bytes; }
  uint64_t restored_bytes() const { return restored_bytes_; }
  uint64_t asleep_bytes() const { return asleep_bytes_ + checkpointed_bytes_ + held_bytes_; }
  const VgpuSpec& spec() const { return spec_; }
  bool running() const { return state_ == State::kRunning; }
  void request(const nlohmann::json& object, SessionManager::Answer answer);
  // Whether it is to be asked how its runners are: true once after it said that something is new or more_news(), and
  // always if it is of a version that does not say so.
  bool take_news();
  bool has_news() const { return news_ || !notices_; }
  void more_news() { news_ = true; }
  // Whether programs may have used it since quiet() was called.
  bool used() const { return used_ || !notices_; }
  // What it answered last had no programs.
  void quiet() { used_ = false; }
  nlohmann::json describe() const;
  // What its sandbox has and lacks, as it says; null: it does not run, or is of an earlier version.
  nlohmann::json sandbox() const;

 private:
  enum class State { kStarting, kRunning, kWaiting, kStopping, kGone };

  std::string session_log() const;
  void adopt_or_spawn();
  Status spawn();
  void await_ready();
  void forget_ready();
  // Sockets of this virtual GPU whose owner has changed.
  void give_sockets() const;
  // The bounds of what it takes of the host, where there are cgroups.
  Status bound() const;
  void bound_again() const;
  bool connect();
  void connect_gates();
  void ask(const nlohmann::json& object, SessionManager::Answer answer);
  void distrust(const Status& why);
  nlohmann::json set_request() const;
  void watch(int pid);
  void tick();
  void died();
  void pause();
  void became(const Status& status);
  void end_connection() const;
  void clean_up();
  void wait(long milliseconds);

  event_base* base_;
  const Config& config_;
  const Gpu* gpu_;
  const CgroupTree* const cgroups_;
  VgpuSpec spec_;
  const SharingConfigOf sharing_config_of_;
  const std::function<void()> on_news_;
  State state_ = State::kStarting;
  int pid_ = 0;
  UniqueFd pidfd_;
  UniqueFd ready_;  // readable once a session that was started can be reached
  EventPtr exit_event_, timer_, ready_event_;
  std::unique_ptr<JsonClient> link_;
  std::chrono::steady_clock::time_point deadline_{}, since_{};
  unsigned failures_ = 0;
  uint64_t restarts_ = 0, asleep_bytes_ = 0, checkpointed_bytes_ = 0, restored_bytes_ = 0, held_bytes_ = 0;
  SessionManager::Hold hold_ = SessionManager::Hold::kNone;
  bool forget_ = false, keep_log_ = false, contexts_stay_ = false;
  bool asleep_ = false, saved_ = false;
  std::string sleep_error_;
  bool notices_ = false;  // it says when something is new
  bool news_ = true, used_ = true;
  nlohmann::json sandbox_;
  std::vector<SessionManager::Ready> waiting_;
  std::vector<std::function<void()>> when_gone_;
};

}  // namespace bandsaw
