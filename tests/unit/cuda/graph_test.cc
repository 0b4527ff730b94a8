// Graphs within graphs, on the fake driver: who keeps whom.
#include <gtest/gtest.h>

#include <future>

#include "backend/device/cuda/objects.h"
#include "tests/unit/cuda/fake_driver.h"
#include "tests/unit/cuda/fake_host.h"

namespace bandsaw::cuda {
namespace {

class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = new_fake_device(&host_);
    ASSERT_TRUE(device_);
    ASSERT_EQ(device_->context_create(0, &context_), CUDA_SUCCESS);
  }

  GraphRef new_graph() {
    GraphRef graph;
    EXPECT_EQ(device_->graph_create(&graph), CUDA_SUCCESS);
    return graph;
  }

  NodeRef add(const GraphRef& graph, const NodeContent& content) {
    NodeRef node;
    uint64_t value = 0;
    EXPECT_EQ(device_->graph_add_node(graph, {}, content, &node, &value), CUDA_SUCCESS);
    return node;
  }

  NodeRef add_child(const GraphRef& graph, const GraphRef& child, bool moved = false) {
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_GRAPH;
    content.child = child;
    content.moved = moved;
    return add(graph, content);
  }

  NodeRef add_host(const GraphRef& graph) {
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_HOST;
    return add(graph, content);
  }

  GraphRef child_of(const NodeRef& node) {
    NodeContent content;
    EXPECT_EQ(device_->node_get(node, &content), CUDA_SUCCESS);
    return content.child;
  }

  static std::weak_ptr<HostFunction> function_of(const NodeRef& node) { return as(node).host; }

  FakeHost host_;
  std::unique_ptr<Device> device_;
  ContextRef context_;
};

// The program may: its capture is a relaxed one, or the guest's library would not have let it.
TEST_F(GraphTest, MemoryIsFreedWhileAStreamCaptures) {
  StreamRef stream;
  uint64_t address = 0;
  ASSERT_EQ(device_->stream_create(context_, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
  ASSERT_EQ(device_->memory_alloc(context_, 4096, &address), CUDA_SUCCESS);
  ASSERT_EQ(device_->capture_begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED, nullptr, {}), CUDA_SUCCESS);
  const auto wait_for = [](const std::function<void(Done)>& begin) {
    std::promise<CUresult> result;
    begin([&](CUresult outcome) { result.set_value(outcome); });
    return result.get_future().get();
  };
  EXPECT_EQ(wait_for([&](Done done) { device_->memory_free(address, std::move(done)); }), CUDA_SUCCESS);
  EXPECT_EQ(wait_for([&](Done done) { device_->context_synchronize(context_, std::move(done)); }),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  fake_gpu().capturing = nullptr;
}

TEST_F(GraphTest, ItEndsThoughSomebodyHasSeenItsChild) {
  GraphRef parent = new_graph();
  child_of(add_child(parent, new_graph()));
  EXPECT_EQ(fake_gpu().graphs, 1) << "the graph that the child is a copy of";
  parent = nullptr;
  EXPECT_EQ(fake_gpu().graphs, 0);
}

TEST_F(GraphTest, ItEndsThoughSomebodyHasSeenItsBodies) {
  GraphRef parent = new_graph();
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  content.conditional.size = 2;
  uint64_t handle = 0;
  ASSERT_EQ(device_->graph_conditional(context_, parent, 0, 0, &handle), CUDA_SUCCESS);
  content.conditional.handle = handle;
  const NodeRef node = add(parent, content);
  std::vector<GraphRef> bodies;
  ASSERT_EQ(device_->node_bodies(node, &bodies), CUDA_SUCCESS);
  ASSERT_EQ(bodies.size(), 2u);
  parent = nullptr;
  EXPECT_EQ(fake_gpu().graphs, 1) << "a body lives in it";
  bodies.clear();
  EXPECT_EQ(fake_gpu().graphs, 0);
}

TEST_F(GraphTest, WhoHasAChildHasItsParent) {
  GraphRef parent = new_graph();
  GraphRef child = child_of(add_child(parent, new_graph()));
  GraphRef inner = child_of(add_child(child, new_graph()));
  parent = child = nullptr;
  EXPECT_EQ(fake_gpu().graphs, 1);
  inner = nullptr;
  EXPECT_EQ(fake_gpu().graphs, 0);
}

TEST_F(GraphTest, OneChildIsOneObject) {
  const GraphRef parent = new_graph();
  const NodeRef node = add_child(parent, new_graph());
  const GraphRef child = child_of(node);
  add_host(child);
  EXPECT_EQ(child_of(node), child);
}

TEST_F(GraphTest, ItEndsWithAMovedChild) {
  GraphRef parent = new_graph();
  GraphRef child = new_graph();
  const NodeRef node = add_child(parent, child, true);
  EXPECT_EQ(child_of(node), child);
  child = nullptr;
  child_of(node);
  parent = nullptr;
  EXPECT_EQ(fake_gpu().graphs, 0);
}

TEST_F(GraphTest, ItEndsThoughItHasACopyOfItsOwnChild) {
  GraphRef parent = new_graph();
  GraphRef child = child_of(add_child(parent, new_graph()));
  add_child(parent, child);
  GraphRef clone;
  ASSERT_EQ(device_->graph_clone(child, &clone), CUDA_SUCCESS);
  add_child(parent, clone, true);
  clone = child = parent = nullptr;
  EXPECT_EQ(fake_gpu().graphs, 0);
}

TEST_F(GraphTest, FunctionsLiveWithWhatMayCallThem) {
  GraphRef parent = new_graph(), first = new_graph(), moved = new_graph();
  const auto copied = function_of(add_host(first));
  add_child(parent, first);
  add_child(parent, moved, true);
  const auto in_moved = function_of(add_host(moved));
  const auto in_child = function_of(add_host(child_of(add_child(parent, new_graph()))));
  ExecRef exec;
  ASSERT_EQ(device_->graph_instantiate(context_, parent, 0, &exec), CUDA_SUCCESS);
  GraphRef clone;
  ASSERT_EQ(device_->graph_clone(parent, &clone), CUDA_SUCCESS);
  first = moved = parent = nullptr;
  for (const auto& function : {copied, in_moved, in_child}) EXPECT_FALSE(function.expired()) << "the exec calls it";
  exec = nullptr;
  for (const auto& function : {copied, in_moved, in_child}) EXPECT_FALSE(function.expired()) << "the clone calls it";
  clone = nullptr;
  for (const auto& function : {copied, in_moved, in_child}) EXPECT_TRUE(function.expired());
  EXPECT_EQ(fake_gpu().graphs, 0);
}

TEST_F(GraphTest, AHandleThatTheDriverGivesAgainIsAnotherGraph) {
  const GraphRef parent = new_graph();
  const NodeRef node = add_child(parent, new_graph());
  const GraphRef child = child_of(node);
  const CUgraph handle = as(child).handle;
  ASSERT_EQ(device_->node_destroy(node), CUDA_SUCCESS);
  const NodeRef other = add_child(parent, new_graph());
  fake_gpu().inner[as(other).handle].front() = handle;
  EXPECT_NE(child_of(other), child);
}

}  // namespace
}  // namespace bandsaw::cuda
