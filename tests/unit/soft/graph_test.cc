// Graphs: building, capture, executable graphs.
#include <atomic>
#include <cstring>

#include "backend/device/gives_again.h"
#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

// *word = *word * factor + addend: order matters.
void affine(WarpState* warp) {
  struct {
    uint64_t word;
    uint32_t factor, addend;
  } arguments;
  std::memcpy(&arguments, warp->parameters, sizeof arguments);
  auto* word = reinterpret_cast<volatile uint32_t*>(arguments.word);
  *word = *word * arguments.factor + arguments.addend;
}

class SoftGraphTest : public SoftDeviceTest {
 protected:
  SoftGraphTest() : kernel(load(fake_kernel("affine", affine, 16))), words(alloc(4096)) {}

  NodeContent step(uint64_t word, uint32_t factor, uint32_t addend) const {
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_KERNEL;
    content.launch.code.kernel = kernel;
    std::fill_n(content.launch.grid, 3, 1);
    std::fill_n(content.launch.block, 3, 1);
    content.parameter_bytes.resize(16);
    std::memcpy(content.parameter_bytes.data(), &word, 8);
    std::memcpy(content.parameter_bytes.data() + 8, &factor, 4);
    std::memcpy(content.parameter_bytes.data() + 12, &addend, 4);
    content.launch.parameters = content.parameter_bytes;
    return content;
  }
  NodeRef add(const GraphRef& graph, std::vector<NodeRef> after, const NodeContent& content) {
    NodeRef node;
    EXPECT_EQ(device->graph_add_node(graph, after, content, &node, nullptr), CUDA_SUCCESS);
    return node;
  }
  GraphRef graph() {
    GraphRef made;
    EXPECT_EQ(device->graph_create(&made), CUDA_SUCCESS);
    return made;
  }
  ExecRef instantiate(const GraphRef& from, uint64_t flags = 0) {
    ExecRef exec;
    EXPECT_EQ(device->graph_instantiate(context, from, flags, &exec), CUDA_SUCCESS);
    return exec;
  }
  uint32_t value(int i) const { return reinterpret_cast<volatile uint32_t*>(words)[i]; }

  KernelRef kernel;
  uint64_t words;
};

TEST_F(SoftGraphTest, RunsInOrderOfEdges) {
  const GraphRef g = graph();
  const NodeRef a = add(g, {}, step(words, 0, 3));
  const NodeRef b = add(g, {a}, step(words, 10, 1));
  const NodeRef side = add(g, {a}, step(words + 4, 0, 7));
  const NodeRef c = add(g, {b, side}, step(words, 10, 2));
  const ExecRef exec = instantiate(g);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(device->exec_launch(exec, legacy), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 312u);
  EXPECT_EQ(value(1), 7u);

  std::vector<NodeRef> nodes;
  EXPECT_EQ(device->graph_nodes(g, true, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, std::vector<NodeRef>{a});
  EXPECT_EQ(device->node_neighbours(c, false, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, (std::vector<NodeRef>{b, side}));
  std::vector<std::pair<NodeRef, NodeRef>> edges;
  EXPECT_EQ(device->graph_edges(g, &edges), CUDA_SUCCESS);
  EXPECT_EQ(edges.size(), 4u);
}

TEST_F(SoftGraphTest, CyclesAndStrangersAreRefused) {
  const GraphRef g = graph(), other = graph();
  NodeContent empty;
  const NodeRef a = add(g, {}, empty), b = add(g, {a}, empty), c = add(g, {b}, empty), d = add(other, {}, empty);
  const std::pair<NodeRef, NodeRef> to_itself[] = {{a, c}, {c, c}};
  EXPECT_EQ(device->graph_change_edges(g, true, to_itself), CUDA_ERROR_INVALID_VALUE);
  std::vector<std::pair<NodeRef, NodeRef>> edges;
  EXPECT_EQ(device->graph_edges(g, &edges), CUDA_SUCCESS);
  EXPECT_EQ(edges.size(), 2u);  // the good one was taken back
  ExecRef exec;
  const std::pair<NodeRef, NodeRef> cycle[] = {{c, a}};
  EXPECT_EQ(device->graph_change_edges(g, true, cycle), CUDA_SUCCESS);  // no graph that can be instantiated
  EXPECT_EQ(device->graph_instantiate(context, g, 0, &exec), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->graph_change_edges(g, false, cycle), CUDA_SUCCESS);
  const std::pair<NodeRef, NodeRef> stranger[] = {{a, d}};
  EXPECT_EQ(device->graph_change_edges(g, true, stranger), CUDA_ERROR_INVALID_VALUE);
  const std::pair<NodeRef, NodeRef> cut[] = {{a, b}};
  EXPECT_EQ(device->graph_change_edges(g, false, cut), CUDA_SUCCESS);
  EXPECT_EQ(device->graph_change_edges(g, false, cut), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->node_destroy(b), CUDA_SUCCESS);
  EXPECT_EQ(device->node_destroy(b), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->graph_edges(g, &edges), CUDA_SUCCESS);
  EXPECT_TRUE(edges.empty());
}

TEST_F(SoftGraphTest, ClonesAndChildren) {
  const GraphRef g = graph();
  const NodeRef a = add(g, {}, step(words, 2, 1));
  GraphRef copy;
  ASSERT_EQ(device->graph_clone(g, &copy), CUDA_SUCCESS);
  NodeRef twin;
  ASSERT_EQ(device->node_find_in_clone(a, copy, &twin), CUDA_SUCCESS);
  EXPECT_NE(twin, a);
  EXPECT_EQ(device->node_find_in_clone(twin, g, &twin), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(device->node_set(a, step(words, 0, 100)), CUDA_SUCCESS);

  const GraphRef outer = graph();
  NodeContent child;
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.child = copy;
  const NodeRef first = add(outer, {}, child), second = add(outer, {first}, child);
  add(outer, {second}, step(words, 1, 1000));
  ASSERT_EQ(device->exec_launch(instantiate(outer), legacy), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 1003u);  // (0 * 2 + 1) * 2 + 1 + 1000: the clone kept the old node
}

TEST_F(SoftGraphTest, AGraphMovesOnceAndNotIntoItself) {
  const auto move = [&](const GraphRef& from, const GraphRef& into) {
    NodeContent child;
    child.type = CU_GRAPH_NODE_TYPE_GRAPH;
    child.child = from;
    child.moved = true;
    NodeRef node;
    return device->graph_add_node(into, {}, child, &node, nullptr);
  };
  const GraphRef inner = graph(), middle = graph(), outer = graph();
  add(inner, {}, step(words, 0, 5));
  ASSERT_EQ(move(inner, middle), CUDA_SUCCESS);
  EXPECT_EQ(move(inner, outer), CUDA_ERROR_INVALID_VALUE) << "it is the other's";
  EXPECT_EQ(move(outer, outer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(move(middle, inner), CUDA_ERROR_INVALID_VALUE) << "round in a circle";
  ASSERT_EQ(device->exec_launch(instantiate(middle), legacy), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 5u);

  GraphRef deep = graph();
  int moves = 0;
  for (GraphRef next = graph(); moves < 100 && move(deep, next) == CUDA_SUCCESS; next = graph()) {
    deep = next;
    ++moves;
  }
  EXPECT_EQ(moves, 33) << "deeper ones would fill the stack";
}

TEST_F(SoftGraphTest, UpdatesAndSwitches) {
  const GraphRef g = graph();
  const NodeRef a = add(g, {}, step(words, 0, 1)), b = add(g, {a}, step(words, 10, 0));
  const ExecRef exec = instantiate(g);
  ASSERT_EQ(device->exec_node_set(exec, a, step(words, 0, 5)), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_node_enable(exec, b, false), CUDA_SUCCESS);
  bool enabled = true;
  ASSERT_EQ(device->exec_node_enabled(exec, b, &enabled), CUDA_SUCCESS);
  EXPECT_FALSE(enabled);
  ASSERT_EQ(device->exec_launch(exec, legacy), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 5u);

  const GraphRef newer = graph();
  add(newer, {add(newer, {}, step(words, 0, 8))}, step(words, 10, 0));
  CUgraphExecUpdateResult result{};
  NodeRef where;
  ASSERT_EQ(device->exec_update(exec, newer, &result, &where), CUDA_SUCCESS);
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  ASSERT_EQ(device->exec_node_enable(exec, b, true), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_launch(exec, legacy), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 80u);

  const GraphRef wider = graph();
  add(wider, {}, step(words, 0, 8));
  add(wider, {}, step(words, 10, 0));
  EXPECT_EQ(device->exec_update(exec, wider, &result, &where), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  const GraphRef different = graph();
  NodeContent empty;
  const NodeRef root = add(different, {}, empty);
  add(different, {root}, step(words, 10, 0));
  EXPECT_EQ(device->exec_update(exec, different, &result, &where), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  EXPECT_EQ(where, root);
}

// As on an H100.
TEST_F(SoftGraphTest, AskingAfterACapturedEventSpoilsTheCapture) {
  const StreamRef on = stream();
  const EventRef captured = event();
  GraphRef graph;
  ASSERT_EQ(device->capture_begin(on, CU_STREAM_CAPTURE_MODE_RELAXED, nullptr, {}), CUDA_SUCCESS);
  ASSERT_EQ(device->event_record(captured, on, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->event_query(captured), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(device->capture_end(on, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(SoftGraphTest, WordsThatAreWrittenAndWaitedForAreCaptured) {
  const StreamRef on = stream();
  GraphRef graph;
  ASSERT_EQ(device->capture_begin(on, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {}), CUDA_SUCCESS);
  ASSERT_EQ(device->write_value(on, words, 7, 4, 0), CUDA_SUCCESS);
  ASSERT_EQ(device->wait_value(on, words, 7, 4, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ASSERT_EQ(device->capture_end(on, &graph), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 0u);
  ASSERT_EQ(device->exec_launch(instantiate(graph), on), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 7u);
}

TEST_F(SoftGraphTest, CaptureForksAndJoins) {
  const StreamRef a = stream(), b = stream();
  const EventRef fork = event(), join = event();
  uint32_t out = 0;
  ASSERT_EQ(device->capture_begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {}), CUDA_SUCCESS);
  ASSERT_EQ(device->fill(a, {words, 0, 2, 1, 4, 0}, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(device->event_record(fork, a, 0), CUDA_SUCCESS);
  ASSERT_EQ(device->stream_wait_event(b, fork, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(a, kernel, 1, 1, words, 1u, 1u), CUDA_SUCCESS);
  ASSERT_EQ(launch(b, kernel, 1, 1, words + 4, 1u, 2u), CUDA_SUCCESS);
  CaptureInfo info;
  ASSERT_EQ(device->capture_info(b, &info), CUDA_SUCCESS);
  EXPECT_EQ(info.status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(info.dependencies.size(), 1u);
  ASSERT_EQ(device->event_record(join, b, 0), CUDA_SUCCESS);
  ASSERT_EQ(device->stream_wait_event(a, join, 0), CUDA_SUCCESS);
  ASSERT_EQ(device->callback(a, {VGPU_CALLBACK_HOST_FUNCTION, 1, 2, 0}), CUDA_SUCCESS);
  ASSERT_EQ(copy_out(a, &out, words + 4, 4), CUDA_SUCCESS);
  GraphRef captured;
  ASSERT_EQ(device->capture_end(a, &captured), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 0u);
  std::vector<NodeRef> nodes;
  ASSERT_EQ(device->graph_nodes(captured, false, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes.size(), 5u);
  const ExecRef exec = instantiate(captured);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(device->exec_launch(exec, i % 2 ? a : b), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 1u);
  EXPECT_EQ(out, 2u);
  EXPECT_EQ(host.called().size(), 5u);
}

TEST_F(SoftGraphTest, WorkOfADestroyedForkIsCapturedAndHasToBeJoined) {
  const EventRef fork = event(), join = event();
  for (const bool joins : {true, false}) {
    const StreamRef a = stream(), b = stream();
    ASSERT_EQ(device->capture_begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {}), CUDA_SUCCESS);
    ASSERT_EQ(device->event_record(fork, a, 0), CUDA_SUCCESS);
    ASSERT_EQ(device->stream_wait_event(b, fork, 0), CUDA_SUCCESS);
    ASSERT_EQ(launch(b, kernel, 1, 1, words, 1u, 7u), CUDA_SUCCESS);
    ASSERT_EQ(device->event_record(join, b, 0), CUDA_SUCCESS);
    if (joins) {
      ASSERT_EQ(device->stream_wait_event(a, join, 0), CUDA_SUCCESS);
    }
    ASSERT_EQ(device->stream_destroy(b), CUDA_SUCCESS);
    GraphRef captured;
    EXPECT_EQ(device->capture_end(a, &captured), joins ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  }
}

TEST_F(SoftGraphTest, CaptureErrors) {
  const StreamRef a = stream(CU_STREAM_DEFAULT), b = stream();
  GraphRef captured;
  const EventRef outside = event(), fork = event();
  EXPECT_EQ(device->capture_end(a, &captured), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(device->capture_begin(legacy, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {}),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const auto begin = [&] { return device->capture_begin(a, CU_STREAM_CAPTURE_MODE_RELAXED, nullptr, {}); };

  ASSERT_EQ(begin(), CUDA_SUCCESS);
  EXPECT_EQ(begin(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(sync(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(launch(a, kernel, 1, 1, words, 1u, 1u), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(device->capture_end(a, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_EQ(begin(), CUDA_SUCCESS);
  EXPECT_EQ(launch(legacy, kernel, 1, 1, words, 1u, 1u), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(device->capture_end(a, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_EQ(begin(), CUDA_SUCCESS);
  EXPECT_EQ(device->stream_wait_event(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(device->capture_end(a, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(device->event_record(fork, a, 0), CUDA_SUCCESS);
  ASSERT_EQ(device->stream_wait_event(b, fork, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(b, kernel, 1, 1, words, 1u, 1u), CUDA_SUCCESS);
  EXPECT_EQ(device->capture_end(a, &captured), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(device->event_record(fork, a, 0), CUDA_SUCCESS);
  ASSERT_EQ(device->stream_wait_event(b, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->capture_end(b, &captured), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(device->capture_end(a, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(launch(legacy, kernel, 1, 1, words, 1u, 1u), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
}

TEST_F(SoftGraphTest, CaptureIntoGraphAndUpdateDependencies) {
  const StreamRef a = stream();
  const GraphRef g = graph();
  const NodeRef first = add(g, {}, step(words, 0, 3));
  const NodeRef set[] = {first};
  ASSERT_EQ(device->capture_begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL, g, set), CUDA_SUCCESS);
  ASSERT_EQ(launch(a, kernel, 1, 1, words, 10u, 1u), CUDA_SUCCESS);
  ASSERT_EQ(device->capture_update(a, CU_STREAM_SET_CAPTURE_DEPENDENCIES, set), CUDA_SUCCESS);
  ASSERT_EQ(launch(a, kernel, 1, 1, words + 4, 0u, 9u), CUDA_SUCCESS);
  CaptureInfo info;
  ASSERT_EQ(device->capture_info(a, &info), CUDA_SUCCESS);
  std::vector<NodeRef> before;
  ASSERT_EQ(device->node_neighbours(info.dependencies.at(0), false, &before), CUDA_SUCCESS);
  EXPECT_EQ(before, std::vector<NodeRef>{first});
  GraphRef captured;
  ASSERT_EQ(device->capture_end(a, &captured), CUDA_SUCCESS);
  EXPECT_EQ(captured, g);
  ASSERT_EQ(device->exec_launch(instantiate(g), a), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 31u);
}

TEST_F(SoftGraphTest, AllocationNodes) {
  const StreamRef a = stream();
  uint64_t address = 0;
  uint32_t out = 0;
  ASSERT_EQ(device->capture_begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {}), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_alloc_async(a, nullptr, 4096, &address), CUDA_SUCCESS);
  ASSERT_EQ(device->fill(a, {address, 0, 1, 1, 4, 6}, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(launch(a, kernel, 1, 1, address, 7u, 0u), CUDA_SUCCESS);
  ASSERT_EQ(copy_out(a, &out, address, 4), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_free_async(a, address), CUDA_SUCCESS);
  GraphRef captured;
  ASSERT_EQ(device->capture_end(a, &captured), CUDA_SUCCESS);
  const int64_t before = host.charged;
  const ExecRef exec = instantiate(captured);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(device->exec_launch(exec, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(out, 42u);
  EXPECT_EQ(host.charged, before);

  const GraphRef keep = graph();
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  content.bytes = 100;
  NodeRef node;
  ASSERT_EQ(device->graph_add_node(keep, {}, content, &node, &address), CUDA_SUCCESS);
  const ExecRef keeps = instantiate(keep);
  ASSERT_EQ(device->exec_launch(keeps, a), CUDA_SUCCESS);
  EXPECT_EQ(device->exec_launch(keeps, a), CUDA_ERROR_INVALID_VALUE);  // not freed yet
  ASSERT_EQ(device->memory_free_async(a, address), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_launch(keeps, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  *reinterpret_cast<volatile int*>(address) = 1;
  EXPECT_EQ(free(address), CUDA_SUCCESS);
  GraphRef clone;
  EXPECT_EQ(device->graph_clone(keep, &clone), CUDA_ERROR_NOT_SUPPORTED);

  const NodeRef after = add(keep, {node}, NodeContent{});
  const std::pair<NodeRef, NodeRef> edge[] = {{node, after}};
  EXPECT_EQ(device->graph_change_edges(keep, false, edge), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(device->node_destroy(after), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(SoftGraphTest, LaunchesWithoutMemoryAreRefusedAndNothingIsLost) {
  const StreamRef a = stream();
  const GraphRef g = graph();
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  content.bytes = 1 << 20;
  NodeRef nodes[2], freed;
  uint64_t addresses[2] = {};
  ASSERT_EQ(device->graph_add_node(g, {}, content, &nodes[0], &addresses[0]), CUDA_SUCCESS);
  ASSERT_EQ(device->graph_add_node(g, {}, content, &nodes[1], &addresses[1]), CUDA_SUCCESS);
  content.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  for (const uint64_t address : addresses) {
    content.address = address;
    ASSERT_EQ(device->graph_add_node(g, nodes, content, &freed, nullptr), CUDA_SUCCESS);
  }
  const int64_t before = host.charged;
  const ExecRef exec = instantiate(g);
  host.share = before + (3 << 19);  // for one of the two
  EXPECT_EQ(device->exec_launch(exec, a), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(host.charged, before);
  host.share = before + (2 << 20);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(device->exec_launch(exec, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, before);
}

TEST_F(SoftGraphTest, EventNodesAndCapturedLaunches) {
  const StreamRef a = stream();
  const EventRef done = event();
  const GraphRef g = graph();
  NodeContent record;
  record.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  record.event = done;
  add(g, {add(g, {}, step(words, 2, 1))}, record);
  const ExecRef exec = instantiate(g);
  ASSERT_EQ(device->capture_begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {}), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_launch(exec, a), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_launch(exec, a), CUDA_SUCCESS);
  GraphRef captured;
  ASSERT_EQ(device->capture_end(a, &captured), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_launch(instantiate(captured), a), CUDA_SUCCESS);
  EXPECT_EQ(wait_for([&](Done told) { device->event_synchronize(done, std::move(told)); }), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 3u);
}

// What changed since, and what is off, stays so; its nodes can be set, also those of steps that were made again.
TEST_F(SoftGraphTest, AnExecutableGraphIsMadeAgainOfItsSteps) {
  const StreamRef a = stream();
  const GraphRef inner = graph(), g = graph();
  add(inner, {add(inner, {}, step(words, 2, 0))}, step(words, 1, 3));
  NodeContent child;
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.child = inner;
  const NodeRef first = add(g, {}, step(words, 1, 1)), last = add(g, {add(g, {first}, child)}, step(words, 10, 0));
  const NodeRef off = add(g, {last}, step(words, 0, 0));
  const ExecRef exec = instantiate(g);
  ASSERT_EQ(device->exec_node_set(exec, first, step(words, 1, 2)), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_node_enable(exec, off, false), CUDA_SUCCESS);

  std::vector<ExecStep> steps;
  uint64_t flags = 7;
  device->gives_again()->exec_steps(exec, &steps, &flags);
  EXPECT_EQ(flags, 0u);
  ExecRef again;
  ASSERT_EQ(device->gives_again()->exec_make(context, flags, steps, &again), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_launch(again, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 70u);  // ((0 + 2) * 2 + 3) * 10
  ASSERT_EQ(device->exec_node_set(again, last, step(words, 0, 5)), CUDA_SUCCESS);
  ASSERT_EQ(device->exec_launch(again, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(a), CUDA_SUCCESS);
  EXPECT_EQ(value(0), 5u);
}

TEST_F(SoftGraphTest, StepsOfNoExecutableGraphAreRefused) {
  const auto make = [this](const std::vector<ExecStep>& steps, uint64_t flags = 0) {
    ExecRef exec;
    return device->gives_again()->exec_make(context, flags, steps, &exec);
  };
  const ExecStep good{step(words, 1, 1), nullptr, false, true, {}, {}};
  ExecStep before_itself = good, before_later = good, of_nothing = good;
  before_itself.after = {0};
  before_later.after = {~uint32_t{0}};
  of_nothing.content.launch.code.kernel = nullptr;
  EXPECT_EQ(make({good}), CUDA_SUCCESS);
  EXPECT_EQ(make({before_itself}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(make({good, before_later}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(make({of_nothing}), CUDA_SUCCESS);
  EXPECT_EQ(make({good}, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_INVALID_VALUE);
}

// Of an allocation that nobody has reserved, and of a condition that there is none of.
TEST_F(SoftGraphTest, StepsThatHaveWhatGraphsDoNotHaveAreRefused) {
  ExecStep allocates{{}, nullptr, false, true, {}, {}}, chooses = allocates;
  allocates.content.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  allocates.content.bytes = 4096;
  allocates.content.address = words;
  chooses.content.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  chooses.content.conditional = {77, CU_GRAPH_COND_TYPE_WHILE, 1};
  chooses.bodies.emplace_back();
  for (const ExecStep& one : {allocates, chooses}) {
    ExecRef exec;
    EXPECT_EQ(device->gives_again()->exec_make(context, 0, std::span(&one, 1), &exec), CUDA_ERROR_INVALID_VALUE);
  }
}

// Only reserved addresses that are free, and no handle twice.
TEST_F(SoftGraphTest, WhatGraphsShareIsGivenOnce) {
  GivesAgain& again = *device->gives_again();
  SharedByGraphs shared;
  shared.memory = {{words, 4096, 0, 0}};
  EXPECT_NE(again.make_shared_by_graphs(shared), CUDA_SUCCESS) << "somebody has these";
  shared.memory = {{words + (1 << 30), 4096, 0, 1}};
  EXPECT_EQ(again.make_shared_by_graphs(shared), CUDA_ERROR_INVALID_VALUE) << "live, and no launch has it";
  shared.memory.clear();
  shared.conditions = {{5, 1, 2, 1, 0}, {5, 1, 2, 1, 0}};
  EXPECT_EQ(again.make_shared_by_graphs(shared), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(again.shared_by_graphs().conditions.size(), 1u);
  EXPECT_EQ(again.shared_by_graphs().conditions[0].value, 2u);
  again.end_shared_by_graphs();
  EXPECT_TRUE(again.shared_by_graphs().conditions.empty()) << "no graph has it";
}

}  // namespace
}  // namespace bandsaw::soft
