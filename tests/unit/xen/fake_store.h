// xenstore in this process: a tree of texts, watches, transactions that fail when others were at work.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/base/unique_fd.h"

namespace bandsaw::xen {

class FakeStore {
 public:
  struct Watch {
    std::string path, token;  // as they were given
    bool operator==(const Watch&) const = default;
  };

  FakeStore();
  // Relative paths are dom0's. `transaction` 0: none.
  std::optional<std::string> read(const std::string& path, uint32_t transaction = 0) const;
  std::vector<std::string> list(const std::string& path, uint32_t transaction = 0) const;
  void write(const std::string& path, const std::string& value, uint32_t transaction = 0);
  // False: neither it nor its parent is there.
  bool remove(const std::string& path, uint32_t transaction = 0);

  uint32_t begin();
  // False: others have changed something since.
  bool end(uint32_t transaction, bool abort);

  bool watch(const Watch& watch);
  bool unwatch(const Watch& watch);
  void forget_watches();                  // of a connection that is closed
  void fire(const std::string& special);  // of @introduceDomain and the like
  std::optional<Watch> next_event();
  int event_fd() const { return signal_.get(); }
  size_t watches() const { return watches_.size(); }

 private:
  using Tree = std::map<std::string, std::string>;  // by absolute path; sorted, so what lies below follows
  struct Transaction {
    Tree tree;
    uint64_t generation = 0;
    std::vector<std::pair<std::string, bool>> changes;  // path, whether it was removed
  };

  static std::string absolute(const std::string& path);
  const Tree& tree(uint32_t transaction) const;
  Tree& tree(uint32_t transaction);
  void changed(const std::string& path, bool removed, uint32_t transaction);
  void push(Watch event);

  Tree tree_;
  uint64_t generation_ = 0;
  uint32_t next_transaction_ = 1;
  std::map<uint32_t, Transaction> transactions_;
  std::vector<Watch> watches_;
  std::deque<Watch> events_;
  UniqueFd signal_;
};

}  // namespace bandsaw::xen
