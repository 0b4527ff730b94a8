// The product form against what it stands for: the stationary state of the full chain, and Kernelet's own chain of
// rounds with its matrix and eigenvector.
#include "vgpu-sched/slice/chain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>
#include <vector>

namespace bandsaw::slice {
namespace {

// Warps of a and b that are ready or in their latency; the others wait for the bandwidth.
using Where = std::tuple<int, int, int, int>;

struct Both {
  double a = 0, b = 0;
};

// The chain written down state by state, with exponential times, solved by iterating it.
Both brute_force(const Demand& a, int warps_a, const Demand& b, int warps_b) {
  std::vector<Where> states;
  std::map<Where, int> index;
  for (int ra = 0; ra <= warps_a; ++ra)
    for (int da = 0; ra + da <= warps_a; ++da)
      for (int rb = 0; rb <= warps_b; ++rb)
        for (int db = 0; rb + db <= warps_b; ++db) {
          index[{ra, da, rb, db}] = static_cast<int>(states.size());
          states.push_back({ra, da, rb, db});
        }
  struct Move {
    int from, to;
    double rate;
  };
  std::vector<Move> moves;
  std::vector<double> out(states.size());
  const auto move = [&](const Where& from, const Where& to, double rate) {
    if (rate <= 0) return;
    moves.push_back({index.at(from), index.at(to), rate});
    out[index.at(from)] += rate;
  };
  for (const Where& state : states) {
    const auto [ra, da, rb, db] = state;
    const double ready = ra + rb;
    const int qa = warps_a - ra - da;
    const int qb = warps_b - rb - db;
    const double queued = qa + qb;
    if (ra > 0) move(state, {ra - 1, da + 1, rb, db}, ra / ready / a.issue);
    if (rb > 0) move(state, {ra, da, rb - 1, db + 1}, rb / ready / b.issue);
    if (da > 0) move(state, {ra, da - 1, rb, db}, da / a.delay);
    if (db > 0) move(state, {ra, da, rb, db - 1}, db / b.delay);
    if (qa > 0) move(state, {ra + 1, da, rb, db}, qa / queued / a.memory);
    if (qb > 0) move(state, {ra, da, rb + 1, db}, qb / queued / b.memory);
  }
  const double fastest = *std::max_element(out.begin(), out.end()) * 1.01;
  std::vector<double> now(states.size(), 1.0 / static_cast<double>(states.size()));
  for (int i = 0; i < 60000; ++i) {
    std::vector<double> next(states.size());
    for (std::size_t s = 0; s < states.size(); ++s) next[s] = now[s] * (1 - out[s] / fastest);
    for (const Move& one : moves) next[one.to] += now[one.from] * one.rate / fastest;
    now.swap(next);
  }
  Both ipc;
  for (std::size_t s = 0; s < states.size(); ++s) {
    const auto [ra, da, rb, db] = states[s];
    if (ra > 0) ipc.a += now[s] * ra / (ra + rb) / a.issue;
    if (rb > 0) ipc.b += now[s] * rb / (ra + rb) / b.issue;
  }
  return ipc;
}

double binomial(int n, int k, double p) {
  if (k < 0 || k > n) return 0;
  return std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0)) * std::pow(p, k) *
         std::pow(1 - p, n - k);
}

// Kernelet, section 4.3: states by idle warps, one round a step, equations 1 to 3.
double kernelet_rounds(int warps, double memory, double latency) {
  std::vector<std::vector<double>> matrix(warps + 1, std::vector<double>(warps + 1));
  for (int idle = 0; idle <= warps; ++idle) {
    const double back = std::min(1.0, std::max(warps - idle, 1) / latency);
    for (int up = 0; up <= idle; ++up) {
      for (int down = 0; down <= warps - idle; ++down) {
        matrix[idle][idle - up + down] += binomial(idle, up, back) * binomial(warps - idle, down, memory);
      }
    }
  }
  std::vector<double> state(warps + 1, 1.0 / (warps + 1));
  for (int i = 0; i < 20000; ++i) {
    std::vector<double> next(warps + 1);
    for (int from = 0; from <= warps; ++from) {
      for (int to = 0; to <= warps; ++to) next[to] += state[from] * matrix[from][to];
    }
    state.swap(next);
  }
  double busy = 0;
  for (int idle = 0; idle < warps; ++idle) busy += state[idle] * (warps - idle);
  return busy / (busy + state[warps]);
}

TEST(Chain, ProductFormIsTheStationaryStateOfTheFullChain) {
  const std::vector<Demand> kernels = {{.issue = 1, .delay = 5, .memory = 0.4},
                                       {.issue = 1, .delay = 9, .memory = 3},
                                       {.issue = 1, .delay = 30, .memory = 12},
                                       {.issue = 1, .delay = 2, .memory = 0.05}};
  for (const Demand& a : kernels) {
    for (const Demand& b : kernels) {
      for (const auto& [warps_a, warps_b] : {std::pair{1, 3}, {2, 2}, {3, 1}}) {
        const Both exact = brute_force(a, warps_a, b, warps_b);
        const ChainResult got = solve_two(a, warps_a, b, warps_b);
        EXPECT_NEAR(got.ipc_a, exact.a, 1e-3 * exact.a) << a.delay << " beside " << b.delay;
        EXPECT_NEAR(got.ipc_b, exact.b, 1e-3 * exact.b) << a.delay << " beside " << b.delay;
      }
    }
  }
}

TEST(Chain, AgreesWithTheRoundsOfThePaper) {
  for (const double memory : {0.02, 0.05, 0.1, 0.3}) {
    for (const double latency : {100.0, 400.0}) {
      const double rounds = kernelet_rounds(16, memory, latency);
      const double got = solve_one({.issue = 1, .delay = memory * latency, .memory = 0}, 16).ipc_a;
      EXPECT_NEAR(got, rounds, 0.1 * rounds) << memory << " " << latency;
    }
  }
}

TEST(Chain, FractionsOfWarpsLieBetweenTheirNeighbours) {
  const Demand a{.issue = 1, .delay = 20, .memory = 2};
  const Demand b{.issue = 1, .delay = 4, .memory = 0.1};
  const double low = solve_two(a, 3, b, 2).ipc_a;
  const double high = solve_two(a, 4, b, 2).ipc_a;
  EXPECT_NEAR(solve_two(a, 3.5, b, 2).ipc_a, (low + high) / 2, 1e-9);
  EXPECT_NEAR(solve_one(a, 0.5).ipc_a, solve_one(a, 1).ipc_a / 2, 1e-9);
  EXPECT_EQ(solve_one(a, 0).ipc_a, 0);
}

TEST(Chain, ComplementaryKernelsGainAndEqualOnesDoNot) {
  const Demand compute{.issue = 1, .delay = 3, .memory = 0.05};
  const Demand memory{.issue = 1, .delay = 60, .memory = 6};
  const auto throughput = [](const Demand& a, const Demand& b) {
    const ChainResult both = solve_two(a, 8, b, 8);
    return both.ipc_a / solve_one(a, 16).ipc_a + both.ipc_b / solve_one(b, 16).ipc_a;
  };
  EXPECT_GT(throughput(compute, memory), 1.3);
  EXPECT_NEAR(throughput(compute, compute), 1, 0.01);
  EXPECT_NEAR(throughput(memory, memory), 1, 0.01);
}

TEST(Chain, DelayIsFoundBack) {
  for (const double delay : {0.5, 4.0, 70.0}) {
    const Demand demand{.issue = 1, .delay = delay, .memory = 0.8};
    const double ipc = solve_one(demand, 12).ipc_a;
    EXPECT_NEAR(delay_for({.issue = 1, .memory = 0.8}, 12, ipc), delay, 0.01 * delay);
  }
}

}  // namespace
}  // namespace bandsaw::slice
