// The compiled code of one virtual GPU on disk: its runners read it, and its session alone writes there, within the
// virtual GPU's limit.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// One thread: the event loop's.
class CodeStore {
 public:
  // `folder`: the virtual GPU's, of this user. What was kept is found again; `most`: bytes, as below.
  static Result<std::unique_ptr<CodeStore>> open(int folder, uint64_t most);

  // What a runner wants kept, or has read. Nonsense is refused, and said in the log.
  void request(const RunnerMessage& message, const ExchangeTail& tail, int file);
  // Bytes of disk that may be used; what was not used for longest goes.
  void set_most(uint64_t most);
  uint64_t held() const { return held_; }

 private:
  // In order of their last use.
  struct Kept {
    uint64_t bytes = 0;  // of disk
    uint64_t used = 0;   // a number that grows
  };
  CodeStore(UniqueFd folder, uint64_t most) : folder_(std::move(folder)), most_(most) {}
  Status find_kept();
  Status keep(const std::string& key, int file, uint64_t bytes);
  Status write(const std::string& name, int file, uint64_t bytes);
  void use(const std::string& key);
  void add(const std::string& key, const struct stat& found);
  void remove(const std::string& key);
  void make_room(uint64_t most);

  const UniqueFd folder_;
  uint64_t most_, held_ = 0, uses_ = 0;
  std::map<std::string, Kept> kept_;        // by key
  std::map<uint64_t, std::string> by_use_;  // keys, by Kept::used
  bool told_ = false;                       // that something is larger than all that may be kept
};

}  // namespace bandsaw
