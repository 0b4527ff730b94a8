// Writes what a suspended virtual GPU has in the host's memory to a file, and lets go of it; or reads it back. Its
// programs stay. Its runners may end meanwhile, if the file has all that new ones need.
//
// vgpud says which of the two is to come, with a token. Who has the token brings the file, over files.sock:
//   client -> {"token": ...} and a descriptor     answered when all is written, or is back: {"ok", "bytes", "error"}
//   client -> {"keep": true}, after a save        the file is where it is to be: memory is let go of; {"ok", "error"}
//   client -> {"keep": true, "end": true}         and its runners end: restored, its programs get new ones
// The first answer has "lacks" too: what new runners could not have, empty: nothing; then they are not ended either. A
// client that goes before has changed nothing. What was saved is known by a number that the file has too.
#pragma once

#include <event2/event.h>
#include <sys/types.h>

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
  // New runners, by the numbers of the processes that the old ones were.
  using Revived = std::function<void(const Status&, const std::map<int, Runner*>&)>;
  // All outlive this.
  struct Session {
    std::function<std::vector<Runner*>()> runners;
    std::function<bool()> suspended;               // by the administrator
    std::function<void(const std::string&)> stay;  // why it cannot come back; empty: it can
    std::function<uint64_t()> memory;              // bytes that its programs can have
    // What programs have beside that which runners save, and new runners could not have; in words, empty: nothing.
    std::function<std::string()> lacks{};
    // Programs whose runners have ended meanwhile: whether there are any, new ones for all of them, and whether these
    // have become what the old ones were.
    std::function<bool()> awaits{};
    std::function<void(Revived)> revive{};
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
  // What the file has is enough for another runner to follow this one.
  bool replaceable(int pid) const { return !saved_.empty() && replaceable_.contains(pid); }
  // It goes on, and nobody needs the file any more.
  void went_on() { saved_.clear(); }

 private:
  enum class State { kIdle, kExpecting, kWriting, kWritten, kForgetting, kChecking, kReviving, kReading };
  struct Step;

  void accept();
  void receive();
  void take_file(const nlohmann::json& said, std::vector<UniqueFd>* came);
  void tell_runners(uint32_t what, SaveJob* job);
  void tell(Runner* runner, uint32_t what, SaveJob* job, int pid);
  void save();
  void check();
  void revive();
  void read_back(const std::map<int, Runner*>& revived);
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
  saved::Id id_{};  // of what is being saved
  std::set<int> replaceable_;
  std::shared_ptr<Step> step_;
  std::unique_ptr<SaveJob> job_;
  EventPtr accept_event_, client_event_, expire_;
};

}  // namespace bandsaw
