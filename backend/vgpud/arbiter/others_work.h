// Tells each virtual GPU when another one had work last (GrantPage::others_worked_at): while others have none, nobody
// is held up by what stops everybody.
#pragma once

#include "backend/vgpud/arbiter/grant_table.h"

namespace bandsaw {

class OthersWork {
 public:
  explicit OthersWork(GrantTable* table) : table_(table) {}
  void post(sched::Time now);

 private:
  GrantTable* table_;
  sched::Time posted_at_ = 0;
};

}  // namespace bandsaw
