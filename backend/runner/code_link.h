// Hands compiled code to the session, which keeps it on disk (kKeepCode in backend/control/runner_link.h).
#pragma once

#include "backend/control/runner_link.h"
#include "backend/device/code_keeper.h"

namespace bandsaw::runner {

class CodeLink : public CodeKeeper {
 public:
  explicit CodeLink(int socket) : socket_(socket) {}  // the link, not owned
  void keep(const std::string& key, int file, uint64_t bytes) override;
  void used(const std::string& key) override;

 private:
  void send(const RunnerMessage& message, const std::string& key, int file) const;

  const int socket_;
};

}  // namespace bandsaw::runner
