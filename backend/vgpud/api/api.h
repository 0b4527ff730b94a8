// vgpud's control API: HTTP + JSON. openapi.yaml describes every resource; api_routes.cc has the table of them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/api/http_server.h"
#include "backend/vgpud/api/share_limits.h"
#include "backend/vgpud/api/shared_question.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/config.h"
#include "backend/vgpud/gpu.h"
#include "backend/vgpud/history.h"
#include "backend/vgpud/registry.h"
#include "backend/vgpud/sessions/session_manager.h"

namespace bandsaw {

class Api {
 public:
  // All outlive it. `shut_down` is called after the answer to a shutdown was sent.
  Api(const Config& config, Registry* registry, SessionManager* session_manager, Gpus* gpus,
      std::function<void()> shut_down);
  // Where use is noted, and reports come from; without, there are none. It outlives this.
  void set_history(History* history) { history_ = history; }
  void handle(const HttpRequest& request, HttpServer::Answer answer);
  // "GET /v1/status" and so on: all there are.
  static std::vector<std::string> routes();
  // Calls `then` with what GET /v1/status and GET /v1/vgpus would answer.
  void collect(std::function<void(const nlohmann::json& status, const nlohmann::json& vgpus)> then);

  // Reads what all virtual GPUs have used since the last time, for reports.
  void note_all();

 private:
  using Answer = HttpServer::Answer;
  struct Route;
  struct Call;
  static const std::vector<Route>& table();
  void status(const Answer& answer) const;
  void list(const Answer& answer);
  // `notes`: what an answer says besides the view.
  void show(const VgpuSpec& spec, int code, const Answer& answer, const std::vector<std::string>& notes = {});

  void create(nlohmann::json body, const Answer& answer);
  // `gpu`: the only one that it may be on; null: any with room.
  Status check_new(nlohmann::json fields, const Gpu* gpu, VgpuSpec* spec) const;
  void start_new(const VgpuSpec& spec, std::optional<uint32_t> asked_sms, const Answer& answer);
  void undo_create(const VgpuSpec& spec);
  void change(nlohmann::json body, const VgpuSpec& spec, const Answer& answer);
  // `used`: bytes of device memory in use, if the share of memory is to become less.
  void commit_change(nlohmann::json body, const std::string& name, const MemoryUse& used, const Answer& answer);
  void restore(const VgpuSpec& before);
  void scheduler(const Answer& answer) const;
  void change_scheduler(nlohmann::json body, const Answer& answer);
  // Takes `policy` and `queues` out of `body`. ENOTSUP: no shares hold.
  Status take_policy(nlohmann::json* body, std::optional<PolicyChoice>* choice) const;
  Status set_policy(const PolicyChoice& choice);
  // Takes `planning` out of `body`.
  Status take_planning_mode(nlohmann::json* body, std::optional<PlanningMode>* mode) const;
  Status set_planning_mode(PlanningMode mode);
  // Of the devices that have none of their own.
  PolicyChoice common_choice() const;
  PlanningMode planning_mode_of(const Gpu& gpu) const;
  // Shares are enforced.
  bool scheduled() const { return gpus_->first().arbiter->options().scheduled; }
  // What an administrator should know who made, or changed, a virtual GPU with this sharing.
  std::string group_note(const VgpuSpec& spec) const;
  std::vector<std::string> sharing_notes(const VgpuSpec& spec, bool made) const;
  // After the change is in force.
  std::vector<std::string> latency_notes(const VgpuSpec& before, const VgpuSpec& now) const;
  LatencyMeans latency_means(const VgpuSpec& spec) const;
  // All virtual GPUs, with what those that sleep have in the host's memory.
  std::vector<VgpuSpec> with_sleepers() const;
  // Arbiters hear who may lend how much now.
  void review_lending() const;
  // Memory of a device is still held by who borrowed it from one that has gone: nobody may reserve more there now.
  Status check_debt(const Gpu& gpu) const;
  // Bytes of the host's memory that a file brings, or has brought, for one that is suspended.
  uint64_t room_to_restore(const std::string& name) const;
  std::vector<std::string> sms_notes(const VgpuSpec& before, const VgpuSpec& now, std::optional<uint32_t> asked) const;

  void list_segments(const Answer& answer);
  void create_segment(const nlohmann::json& body, const Answer& answer);
  void commit_segment(SegmentSpec made, uint64_t used, uint64_t resident, const Answer& answer);
  void keep_segment(const SegmentSpec& segment, const std::string& device, int code, const Answer& answer);
  void destroy_segment(const HttpRequest& request, const Answer& answer);
  void grant_segment(const HttpRequest& request, const nlohmann::json& body, const Answer& answer);
  void revoke_segment(const HttpRequest& request, const nlohmann::json& body, const Answer& answer);
  // Null: there is none of the path's name, which is refused.
  std::optional<SegmentSpec> segment_of(const HttpRequest& request, const Answer& answer) const;
  uint64_t next_segment_id() const;

  void report(const HttpRequest& request, const Answer& answer);
  void note_use(const nlohmann::json& view);
  void start_trace(const nlohmann::json& body, const Answer& answer);
  void take_trace(const nlohmann::json& body, const Answer& answer);

  void destroy(const VgpuSpec& spec, bool force, const Answer& answer);
  // Takes a device out of service for new virtual GPUs, or back.
  void change_device(const HttpRequest& request, const nlohmann::json& body, const Answer& answer);
  void attach(const nlohmann::json& body, const VgpuSpec& spec, const Answer& answer);
  void detach(const VgpuSpec& spec, const Answer& answer);
  // For a change that stops the virtual GPU's programs: `answer`, until which no other such change begins. Null: one is
  // under way, and this is refused.
  Answer claim(const std::string& name, const char* what, const Answer& answer);
  // Its programs stop, then what it has on the device leaves that; and the other way round.
  // `contexts_stay`: on a GPU; for who saves it with all that its programs have.
  void suspend(const VgpuSpec& spec, bool contexts_stay, const Answer& answer);
  void commit_suspend(const std::string& name, const nlohmann::json& paused, const Answer& answer);
  void refuse_suspend(const std::string& name, int code, const Status& why, const Answer& answer);
  void resume(const VgpuSpec& spec, const Answer& answer);
  void commit_resume(const VgpuSpec& spec, const Answer& answer);
  // What a suspended one has in the host's memory goes to a file, or comes from it: answers with where the file is to
  // be brought by the user who asks, and with which token.
  void save(const VgpuSpec& spec, uid_t uid, const Answer& answer);
  void bring_back(const VgpuSpec& spec, uid_t uid, const Answer& answer);
  void expect_file(const VgpuSpec& spec, const char* op, uid_t uid, const Answer& answer);
  // After the change of its spec, which is taken back if the session says that it came to nothing.
  void finish_suspension(const VgpuSpec& before, const char* wanted, const Answer& answer);
  // To another device, with its programs where they can come along.
  void move(const nlohmann::json& body, const VgpuSpec& spec, const Answer& answer);
  // Puts `spec` on the device of that name, or with none on any other of its kind with room, unless that is refused.
  std::optional<api::Refusal> find_target(const std::string& device, const nlohmann::json& view, VgpuSpec* spec) const;
  void pause_and_move(const VgpuSpec& spec, const std::string& device, const Answer& answer);
  void leave_and_move(const VgpuSpec& spec, const std::string& device, uint64_t bytes, const nlohmann::json& paused,
                      const Answer& answer);
  void commit_move(const VgpuSpec& spec, const std::string& device, const nlohmann::json& view, const Answer& answer);
  void finish_move(const VgpuSpec& before, const Answer& answer);
  void end_move(const VgpuSpec& before, const Status& moved, const Answer& answer);
  void undo_move(const VgpuSpec& before, const VgpuSpec& refused);
  void xml(const VgpuSpec& spec, const Answer& answer) const;
  void shut_down(const Answer& answer);
  nlohmann::json status_state() const;
  nlohmann::json device_state(const Gpu& gpu) const;
  nlohmann::json plan_state(const PlanState& plan) const;
  nlohmann::json mps_state(const Gpu& gpu) const;
  nlohmann::json scheduler_state() const;
  // What holds the shares of the compute engine; null: nothing does.
  nlohmann::json compute_state(const Gpu& gpu) const;
  // What the arbiter of its device knows of it; nothing: it is not known there.
  std::optional<VgpuUse> use_of(const VgpuSpec& spec) const;
  nlohmann::json latency_state(const VgpuSpec& spec) const;
  void collect_views(SharedQuestions::Then then);
  // Calls `then` with the view of a virtual GPU: its spec and what its session says now.
  void view(const VgpuSpec& spec, SharedQuestions::Then then);
  void ask_view(const VgpuSpec& spec, SharedQuestions::Then then);
  void not_found(const std::string& name, const Answer& answer) const;
  bool administers(const HttpRequest& request) const;
  Answer audited(const HttpRequest& request, const VgpuSpec& before, Answer answer) const;

  const Config& config_;
  Registry* registry_;
  SessionManager* session_manager_;
  Gpus* gpus_;
  History* history_ = nullptr;
  SharedQuestions views_;                       // by the virtual GPU's name
  std::map<std::string, const char*> claimed_;  // by the virtual GPU's name: what is being done to it
  struct Restoring {
    uint64_t bytes = 0;
    std::chrono::steady_clock::time_point until{};
  };
  std::map<std::string, Restoring> restoring_;  // files that have just been asked for, by the virtual GPU's name
  uint64_t trace_ = 0, traces_ = 0;             // the one that is being recorded, 0: none; how many there were
  std::chrono::steady_clock::time_point trace_until_{};
  std::function<void()> shut_down_;
  bool ending_ = false;  // sessions end, and vgpud after them
};

}  // namespace bandsaw
