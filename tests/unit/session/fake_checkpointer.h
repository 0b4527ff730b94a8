// Keeps its orders until the test answers them.
#pragma once

#include <vector>

#include "backend/session/checkpointer.h"

namespace bandsaw {

struct FakeCheckpointer : Checkpointer {
  void start() override {}
  void stop() override {}
  void carry_out(pid_t runner, bool off, Done done) override { orders.push_back({runner, off, std::move(done)}); }

  std::chrono::microseconds last_took() const override { return took; }

  struct Order {
    pid_t runner;
    bool off;
    Done done;
  };
  std::vector<Order> orders;
  std::chrono::microseconds took{};
};

}  // namespace bandsaw
