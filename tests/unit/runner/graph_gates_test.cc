// Graphs pass their gates: those of all engines that they use, and in segments where others want the engine.
#include "backend/runner/execution/graph_segments.h"
#include "tests/unit/runner/pieces.h"

namespace bandsaw::runner {
namespace {

// Of a launch of a graph with these copies, and perhaps a fill.
class GraphGatesTest : public CopyPiecesTest {
 protected:
  uint64_t make_graph() { return ring_.call<wire::GraphCreateReply>(Opcode::kGraphCreate).reply.graph; }
  template <typename Node>
  uint64_t add_node(uint64_t graph, CUgraphNodeType type, const Node& node, const std::vector<uint64_t>& after = {}) {
    std::string data(reinterpret_cast<const char*>(after.data()), after.size() * sizeof(uint64_t));
    data.append(reinterpret_cast<const char*>(&node), sizeof node);
    const wire::GraphAddNodeArgs args{graph, static_cast<uint32_t>(type), static_cast<uint32_t>(after.size()),
                                      static_cast<uint32_t>(data.size()), 0};
    const auto made = ring_.call<wire::GraphAddNodeReply>(Opcode::kGraphAddNode, args, data);
    EXPECT_EQ(made.result, CUDA_SUCCESS);
    return made.reply.node;
  }
  uint64_t add_fill(uint64_t graph, uint64_t at = 0, const std::vector<uint64_t>& after = {}) {
    const vgpu_fill_node fill{{device_base() + at, 0, 1, 1, 1, 7}, ring_.context};
    return add_node(graph, CU_GRAPH_NODE_TYPE_MEMSET, fill, after);
  }
  void add_copy_in(uint64_t graph, uint64_t bytes) {
    const vgpu_copy copy = linear_copy(device_base(), VGPU_MEMORY_DEVICE, kPiecesHost, VGPU_MEMORY_HOST, bytes);
    add_node(graph, CU_GRAPH_NODE_TYPE_MEMCPY, vgpu_copy_node{copy, ring_.context});
  }
  uint64_t instantiate(uint64_t graph) {
    const wire::GraphInstantiateArgs args{graph, 0};
    return ring_.call<wire::GraphInstantiateReply>(Opcode::kGraphInstantiate, args).reply.exec;
  }
  void launch(uint64_t exec, uint64_t stream = 0) {
    ring_.send(Opcode::kExecLaunch, wire::ExecLaunchArgs{exec, stream});
  }
  // Grants all that is asked for, until so many have been launched.
  bool grant_launches(int times) {
    Gate& compute = gate(Engine::kCompute);
    return TestRing::wait([&] {
      const uint32_t asked = compute.asked;
      if (compute.granted.exchange(asked) != asked) futex_wake(&compute.granted);
      return device().exec_launches >= times;  // a segment is one
    });
  }
  // Until nothing of the stream waits.
  void settle_calls(uint64_t stream) {
    const uint64_t call = ring_.send(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{stream});
    Gate& compute = gate(Engine::kCompute);
    TestRing::wait([&] {
      const uint32_t asked = compute.asked;
      if (compute.granted.exchange(asked) != asked) futex_wake(&compute.granted);
      return TestRing::load(ring_.header->reply_seq) == call;
    });
  }
  std::vector<std::vector<uint64_t>> launched() {
    std::lock_guard lock(device().mutex);
    return std::exchange(device().launched_fills, {});
  }
  bool was_launched(int times) {
    return TestRing::wait([&] { return device().exec_launches == times; });
  }
};

// A graph of twelve nodes, in pairs that do not depend on each other, whose nodes take half as long as a segment may.
class GraphSegmentsTest : public GraphGatesTest {
 protected:
  static constexpr uint64_t kNodes = 12;

  GraphSegmentsTest() {
    device().first_address = device_base();
    device().busy_ns = kNodes * kPiecesQuantumNs / 4;
    graph_ = make_graph();
    std::vector<uint64_t> before;
    for (uint64_t pair = 0; pair < kNodes / 2; ++pair) {
      before = {add_fill(graph_, 2 * pair, before), add_fill(graph_, 2 * pair + 1, before)};
    }
    exec_ = instantiate(graph_);
  }
  // Launches it until that is done in segments; as often as it takes to make them.
  void warm_up(uint64_t stream) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    do {
      launch(exec_, stream);
      grant_launches(device().exec_launches + 1);
      settle_calls(stream);
    } while (launched().size() < 2 && std::chrono::steady_clock::now() < until);
  }

  uint64_t graph_ = 0, exec_ = 0;
};

TEST_F(GraphSegmentsTest, WhereOthersWantTheEngineItGoesInSegments) {
  const uint64_t stream = make_stream();
  warm_up(stream);
  const uint32_t asked = gate(Engine::kCompute).asked;
  launch(exec_, stream);
  settle_calls(stream);
  const auto segments = launched();
  ASSERT_EQ(segments.size(), kNodes / 2);
  EXPECT_EQ(gate(Engine::kCompute).asked, asked + segments.size());
  uint64_t number = 0;
  for (const std::vector<uint64_t>& segment : segments) {
    ASSERT_EQ(segment.size(), 2u);
    EXPECT_EQ(std::min(segment[0], segment[1]), number);
    EXPECT_EQ(std::max(segment[0], segment[1]), number + 1);
    number += 2;
  }
}

// The driver does not copy all kinds of nodes.
TEST_F(GraphSegmentsTest, AGraphThatMayNotBeCutIsNotCopied) {
  const int before = device().graph_copies;
  instantiate(graph_);
  EXPECT_EQ(device().graph_copies, before + 2);
  add_node(graph_, CU_GRAPH_NODE_TYPE_HOST, vgpu_host_node{1, 2});
  instantiate(graph_);
  EXPECT_EQ(device().graph_copies, before + 3);
}

TEST_F(GraphSegmentsTest, WhoIsAloneLaunchesItWhole) {
  const uint64_t stream = make_stream();
  warm_up(stream);
  gate(Engine::kCompute).open = 1;
  launch(exec_, stream);
  settle_calls(stream);
  EXPECT_EQ(launched(), (std::vector<std::vector<uint64_t>>{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}));
}

// Two launches of one graph do not run beside each other.
TEST_F(GraphSegmentsTest, OnAnotherStreamItIsWholeAndWaitsForTheLast) {
  const uint64_t stream = make_stream(), other = make_stream();
  warm_up(stream);
  const int waits = device().waits;
  launch(exec_, other);
  settle_calls(other);
  EXPECT_EQ(launched().size(), 1u);
  EXPECT_EQ(device().waits, waits + 1);
}

TEST_F(GraphSegmentsTest, OneThatWasChangedIsNotCutAnyMore) {
  const uint64_t stream = make_stream();
  warm_up(stream);
  const uint64_t node = add_fill(graph_, 99);
  EXPECT_EQ(ring_.call(Opcode::kExecNodeEnable, wire::ExecNodeEnableArgs{exec_, node, 0, 0}).result, CUDA_SUCCESS);
  launch(exec_, stream);
  settle_calls(stream);
  EXPECT_EQ(launched().size(), 1u);
}

TEST_F(GraphSegmentsTest, NodesThatMustStayTogetherDo) {
  const vgpu_host_node host{1, 2};
  add_node(graph_, CU_GRAPH_NODE_TYPE_HOST, host);
  exec_ = instantiate(graph_);
  const uint64_t stream = make_stream();
  for (int i = 0; i < 20; ++i) {
    launch(exec_, stream);
    settle_calls(stream);
  }
  EXPECT_EQ(launched().size(), 20u);
}

TEST_F(GraphGatesTest, AGraphPassesTheGatesOfAllItsEngines) {
  const uint64_t graph = make_graph();
  add_fill(graph);
  add_copy_in(graph, 128 << 10);
  launch(instantiate(graph));
  TestRing::wait([&] { return gate(Engine::kCompute).asked == 1; });
  settle();
  EXPECT_EQ(gate().asked, 0u);  // not before it has the first
  gate(Engine::kCompute).granted = 1;
  futex_wake(&gate(Engine::kCompute).granted);
  TestRing::wait([&] { return gate().asked == 1; });
  settle();
  EXPECT_EQ(device().exec_launches, 0);
  gate().granted = 1;
  futex_wake(&gate().granted);
  // While it waited for the second it may have let go of the first.
  TestRing::wait([&] {
    const uint32_t asked = gate(Engine::kCompute).asked;
    if (gate(Engine::kCompute).granted.exchange(asked) != asked) futex_wake(&gate(Engine::kCompute).granted);
    return device().exec_launches == 1;
  });
  EXPECT_EQ(gate().begun, 1u);
  EXPECT_EQ(gate(Engine::kCompute).begun, gate(Engine::kCompute).asked);
  EXPECT_EQ(gate(Engine::kCopyOut).asked, 0u);
}

// Who asks may be what the graph's stream waits for: the program, of another device's work.
TEST_F(GraphGatesTest, AnEventOfNoGraphIsAskedAfterWhileAGraphWaitsAtItsGate) {
  const auto make_event = [&] {
    return ring_.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0, 0}).reply.event;
  };
  const uint64_t graph = make_graph(), its_own = make_event(), other = make_event();
  add_fill(graph);
  add_node(graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD, its_own);
  launch(instantiate(graph));
  TestRing::wait([&] { return gate(Engine::kCompute).asked == 1; });
  EXPECT_EQ(ring_.call(Opcode::kEventQuery, wire::EventQueryArgs{other}).result, CUDA_SUCCESS);
  const uint64_t query = ring_.send(Opcode::kEventQuery, wire::EventQueryArgs{its_own});
  settle();
  EXPECT_NE(TestRing::load(ring_.header->reply_seq), query);  // the graph may record it
  EXPECT_TRUE(grant_launches(1));
  EXPECT_EQ(ring_.answer(query).result, CUDA_SUCCESS);
}

TEST_F(GraphGatesTest, AGraphOfCopiesPassesTheirGateAlone) {
  const uint64_t graph = make_graph();
  add_copy_in(graph, 64 << 10);
  launch(instantiate(graph));
  grant(1);
  EXPECT_TRUE(was_launched(1));
  EXPECT_EQ(gate(Engine::kCompute).asked, 0u);
  launch(instantiate(make_graph()));  // an empty one, as a launch
  grant(1, Engine::kCompute);
  EXPECT_TRUE(was_launched(2));
}

// Where the hardware switches between programs, a graph is charged what it takes by itself, as a launch is.
TEST_F(GraphGatesTest, AGraphIsChargedWhatItTakesByItself) {
  gate(Engine::kCompute).open = kOpenWide;
  const uint64_t graph = make_graph();
  for (int i = 0; i < 100; ++i) add_fill(graph, static_cast<uint64_t>(i));
  const uint64_t exec = instantiate(graph), stream = make_stream();
  device().busy_ns = 3000;
  launch(exec, stream);
  TestRing::wait([&] { return gate(Engine::kCompute).ended == 1; });
  EXPECT_EQ(gate(Engine::kCompute).own_ns, 0u) << "it was the first";
  device().busy_ns = 50'000;
  for (uint32_t i = 2; i < 6; ++i) {
    launch(exec, stream);
    settle_calls(stream);
    TestRing::wait([&] { return gate(Engine::kCompute).ended == i; });
  }
  EXPECT_EQ(gate(Engine::kCompute).busy_ns, 5 * 3000u);
}

TEST_F(GraphGatesTest, EachNodeIsAUnit) {
  gate(Engine::kCompute).open = 1;
  const uint64_t graph = make_graph(), child = make_graph();
  for (int i = 0; i < 5; ++i) add_fill(graph);
  for (int i = 0; i < 3; ++i) add_fill(child);
  add_node(graph, CU_GRAPH_NODE_TYPE_GRAPH, child);
  launch(instantiate(graph));
  EXPECT_TRUE(was_launched(1));
  EXPECT_EQ(device().last_exec->nodes[kCompute], 8u);
  EXPECT_EQ(device().last_exec->nodes[kCopyIn] + device().last_exec->bytes[kCopyIn], 0u);
}

}  // namespace
}  // namespace bandsaw::runner
