// Writes what a suspended virtual GPU has in the host's memory to a file, and lets go of it; or reads it back. Its
// programs stay. Its runners may end meanwhile, if the file has all that new ones need; so may this session, and
// another one reads the file for the programs that have come to it.
//
// vgpud says which of the two is to come, with a token. Who has the token brings the file, over files.sock:
//   client -> {"token": ...} and a descriptor     answered when all is written, or is back: {"ok", "bytes", "error"}
//             with {"without_missing": true}      restored without the programs that are in it and do not come back
//   client -> {"keep": true}, after a save        the file is where it is to be: memory is let go of; {"ok", "error"}
//   client -> {"keep": true, "end": true}         and its runners end: restored, its programs get new ones
// The first answer has "lacks" too: what new runners could not have, empty: nothing; then they are not ended either. A
// client that goes before has changed nothing. What was saved is known by a number that the file has too.
#pragma once

#include <event2/event.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/control/saved/file.h"
#include "backend/session/runner.h"
#include "backend/session/save_job.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Threads: the event loop's only; a SaveJob moves the bytes.
class Saver {
 public:
  enum class What { kSave, kRestore };
  using Programs = std::set<ReturnKey>;
  // New runners, by the programs that they are for.
  using Revived = std::function<void(const Status&, const std::map<ReturnKey, Runner*>&)>;
  // All outlive this.
  struct Session {
    std::function<std::vector<Runner*>()> runners;
    std::function<bool()> suspended;               // by the administrator
    std::function<void(const std::string&)> stay;  // why it cannot come back; empty: it can
    std::function<uint64_t()> memory;              // bytes that its programs can have
    std::function<void()> changed{};               // a file is expected, or no more; may be null
    // What programs have beside that which runners save, and new runners could not have; in words, empty: nothing.
    std::function<std::string()> lacks{};
    // Programs whose runners have ended meanwhile, or that have come from another session: all, new runners for some of
    // them, and whether these have become what the old ones were.
    std::function<Programs()> away{};
    std::function<void(const Programs&, Revived)> revive{};
    std::function<void(bool)> revived{};
    saved::Id vgpu{};
  };
  Saver(event_base* base, UniqueFd listener, Session session);
  ~Saver();
  Saver(const Saver&) = delete;

  // A process of this user that brings the token next, and soon, brings the file. EBUSY: not now.
  Status expect(What what, const std::string& token, uid_t uid);
  // The number, in hexadecimal, of the file that has its programs' memory; empty: it is here, or they have ended.
  std::string saved() const;
  // Bytes of the host's memory that a file brings, or has brought for programs that wait for their return; 0: none.
  uint64_t restored_bytes() const;
  // What the file has is enough for another runner to follow the program's.
  bool replaceable(const ReturnKey& program) const { return !saved_.empty() && replaceable_.contains(program); }
  // It has ended, and will not come back.
  void program_ended(const ReturnKey& program) { replaceable_.erase(program); }
  // It goes on, and nobody needs the file any more.
  void went_on() { forget_file(); }

 private:
  enum class State { kIdle, kExpecting, kWriting, kWritten, kForgetting, kChecking, kAwaiting, kReviving, kReading };
  struct Step;

  void accept();
  void receive();
  void take_file(const nlohmann::json& said, std::vector<UniqueFd>* came);
  void tell_runners(uint32_t what, SaveJob* job);
  void tell(Runner* runner, uint32_t what, SaveJob* job);
  void save();
  void check();
  Status is_right_file() const;
  Programs missing() const;
  void await_programs();
  void revive();
  void read_back(const std::map<ReturnKey, Runner*>& revived);
  void forget_file();
  void forget(bool end);
  std::string lacks() const;
  void run(std::unique_ptr<SaveJob> job);
  void one_less(const std::shared_ptr<Step>& step);
  void advance();
  void advance_written(const Status& status);
  void finish(const Status& status);
  void answer(const Status& status, uint64_t bytes = 0);
  void client_gone();

  event_base* const base_;
  const UniqueFd listener_;
  const Session session_;
  State state_ = State::kIdle;
  What what_ = What::kSave;
  std::string token_, saved_;
  uid_t uid_ = 0;  // whose process brings it
  UniqueFd client_, file_;
  saved::Id id_{};        // of what is being saved
  Programs replaceable_;  // of what was saved here
  bool without_missing_ = false;
  std::chrono::steady_clock::time_point await_until_{};
  std::shared_ptr<Step> step_;
  uint64_t restored_ = 0;  // bytes, since a file was read and until its programs go on
  std::unique_ptr<SaveJob> job_;
  EventPtr accept_event_, client_event_, expire_, await_;
};

}  // namespace bandsaw
