// nvcc: -rdc=true -lcudadevrt
// Counts by graphs that have memory of their own, conditional nodes, or are copies of others.
#include <vector>

#include "save_kinds.cuh"

namespace {

__global__ void go_on_while(cudaGraphConditionalHandle handle, unsigned* left) {
  cudaGraphSetConditional(handle, --*left > 0);
}

__global__ void choose(cudaGraphConditionalHandle handle, const unsigned* words) {
  cudaGraphSetConditional(handle, *words % 2);
}

cudaGraphNode_t add_kernel(cudaGraph_t graph, void* function, std::vector<void*> arguments,
                           std::vector<cudaGraphNode_t> after = {}) {
  cudaGraphNode_t node;
  cudaKernelNodeParams params{};
  params.func = function;
  params.gridDim = dim3(function == reinterpret_cast<void*>(add) ? 8 : 1);
  params.blockDim = dim3(function == reinterpret_cast<void*>(add) ? 128 : 1);
  params.kernelParams = arguments.data();
  CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
  return node;
}

cudaGraphNode_t add_adder(cudaGraph_t graph, unsigned* words, unsigned by, std::vector<cudaGraphNode_t> after = {}) {
  unsigned count = kWords;
  return add_kernel(graph, reinterpret_cast<void*>(add), {&words, &count, &by}, std::move(after));
}

cudaGraphExec_t ready(cudaGraph_t graph, unsigned flags = 0) {
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, flags));
  return exec;
}

unsigned* zeros(unsigned count = kWords) {
  unsigned* words = nullptr;
  CHECK(cudaMalloc(&words, count * sizeof(unsigned)));
  CHECK(cudaMemset(words, 0, count * sizeof(unsigned)));
  return words;
}

cudaGraphNode_t add_allocation(cudaGraph_t graph, unsigned** words) {
  cudaGraphNode_t node;
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location = {cudaMemLocationTypeDevice, 0};
  params.bytesize = kWords * sizeof(unsigned);
  CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  *words = static_cast<unsigned*>(params.dptr);
  return node;
}

// Memory of a graph that lives on after the launch, of one that has gone, of one that frees it itself, and of one that
// frees it at its next launch.
class GraphMemory : public Kind {
 public:
  GraphMemory() {
    cudaGraphNode_t unused;
    cudaGraph_t graph, freeing, within;
    CHECK(cudaGraphCreate(&graph, 0));
    add_allocation(graph, &kept_);
    CHECK(cudaGraphLaunch(ready(graph), 0));
    CHECK(cudaGraphCreate(&gone_, 0));
    add_allocation(gone_, &orphan_);
    cudaGraphExec_t gone = ready(gone_);
    CHECK(cudaGraphLaunch(gone, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphExecDestroy(gone));
    CHECK(cudaGraphDestroy(gone_));
    CHECK(cudaMemset(kept_, 0, kWords * sizeof(unsigned)));
    CHECK(cudaMemset(orphan_, 0, kWords * sizeof(unsigned)));
    unsigned* passing = nullptr;
    CHECK(cudaGraphCreate(&within, 0));
    cudaGraphNode_t allocation = add_allocation(within, &passing);
    cudaGraphNode_t adder = add_adder(within, passing, 1, {allocation});
    CHECK(cudaGraphAddMemFreeNode(&unused, within, &adder, 1, passing));
    add_adder(within, kept_, 1);
    within_ = ready(within);
    CHECK(cudaGraphCreate(&freeing, 0));
    add_allocation(freeing, &again_);
    again_exec_ = ready(freeing, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    CHECK(cudaGraphDestroy(freeing));
  }
  void round(unsigned number) override {
    add_one(orphan_);
    CHECK(cudaGraphLaunch(within_, 0));
    CHECK(cudaGraphLaunch(again_exec_, 0));
    CHECK(cudaMemsetAsync(again_, 0, kWords * sizeof(unsigned), 0));
    add_one(again_);
    CHECK(cudaDeviceSynchronize());
    expect_device(kept_, kWords, number);
    expect_device(orphan_, kWords, number);
    expect_device(again_, kWords, 1);
  }

 private:
  unsigned *kept_ = nullptr, *orphan_ = nullptr, *again_ = nullptr;
  cudaGraph_t gone_ = nullptr;
  cudaGraphExec_t within_ = nullptr, again_exec_ = nullptr;
};

cudaGraph_t* conditional(cudaGraph_t graph, cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                         unsigned size, const cudaGraphNode_t* after) {
  cudaGraphNode_t node;
  cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  CHECK(cudaGraphAddNode(&node, graph, after, nullptr, after ? 1 : 0, &params));
  return params.conditional.phGraph_out;
}

// A loop with a choice within, of a graph that changes while it is counted, and a loop of one that has gone.
class Conditional : public Kind {
 public:
  Conditional() : words_(zeros()), left_(zeros(1)), gone_words_(zeros()) {
    cudaGraphConditionalHandle loop;
    CHECK(cudaGraphCreate(&graph_, 0));
    CHECK(cudaGraphConditionalHandleCreate(&loop, graph_, 1, cudaGraphCondAssignDefault));
    body_ = *conditional(graph_, loop, cudaGraphCondTypeWhile, 1, nullptr);
    CHECK(cudaGraphConditionalHandleCreate(&choice_, body_, 0, 0));
    cudaGraphNode_t chooser = add_kernel(body_, reinterpret_cast<void*>(choose), {&choice_, &words_});
    cudaGraph_t* const both = conditional(body_, choice_, cudaGraphCondTypeIf, 2, &chooser);
    add_adder(both[0], words_, 1);
    add_adder(both[1], words_, 1);
    add_kernel(body_, reinterpret_cast<void*>(go_on_while), {&loop, &left_});
    exec_ = ready(graph_);
    cudaGraph_t gone;
    cudaGraphConditionalHandle once;
    CHECK(cudaGraphCreate(&gone, 0));
    CHECK(cudaGraphConditionalHandleCreate(&once, gone, 1, cudaGraphCondAssignDefault));
    add_adder(*conditional(gone, once, cudaGraphCondTypeIf, 1, nullptr), gone_words_, 1);
    gone_ = ready(gone);
    CHECK(cudaGraphDestroy(gone));
  }
  void round(unsigned number) override {
    const unsigned times = 3;
    CHECK(cudaMemcpy(left_, &times, sizeof times, cudaMemcpyHostToDevice));
    CHECK(cudaGraphLaunch(exec_, 0));
    CHECK(cudaGraphLaunch(gone_, 0));
    CHECK(cudaDeviceSynchronize());
    expect_device(words_, kWords, 3 * number);
    expect_device(gone_words_, kWords, number);
    if (number % 4 != 0) return;
    CHECK(cudaGraphExecDestroy(exec_));  // what is made of the graph itself now
    exec_ = ready(graph_);
  }

 private:
  unsigned *words_ = nullptr, *left_ = nullptr, *gone_words_ = nullptr;
  cudaGraph_t graph_ = nullptr, body_ = nullptr;
  cudaGraphConditionalHandle choice_ = 0;
  cudaGraphExec_t exec_ = nullptr, gone_ = nullptr;
};

// A copy, in which the original's node is still found, of a graph with another one within.
class Copy : public Kind {
 public:
  Copy() : words_(zeros()), within_(zeros()) {
    cudaGraph_t child;
    cudaGraphNode_t unused;
    CHECK(cudaGraphCreate(&child, 0));
    add_adder(child, within_, 1);
    CHECK(cudaGraphCreate(&graph_, 0));
    node_ = add_adder(graph_, words_, 1);
    CHECK(cudaGraphAddChildGraphNode(&unused, graph_, &node_, 1, child));
    CHECK(cudaGraphClone(&copy_, graph_));
    exec_ = ready(copy_);
  }
  void round(unsigned number) override {
    CHECK(cudaGraphLaunch(exec_, 0));
    CHECK(cudaDeviceSynchronize());
    expect_device(words_, kWords, number);
    expect_device(within_, kWords, number);
    cudaGraphNode_t found;
    size_t count = 0;
    CHECK(cudaGraphNodeFindInClone(&found, node_, copy_));
    CHECK(cudaGraphGetNodes(copy_, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    CHECK(cudaGraphGetNodes(copy_, nodes.data(), &count));
    EXPECT(nodes[0] == found);
  }

 private:
  unsigned *words_ = nullptr, *within_ = nullptr;
  cudaGraph_t graph_ = nullptr, copy_ = nullptr;
  cudaGraphNode_t node_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

std::unique_ptr<Kind> make(const char* kind) {
  if (!std::strcmp(kind, "memory")) return std::make_unique<GraphMemory>();
  if (!std::strcmp(kind, "conditional")) return std::make_unique<Conditional>();
  if (!std::strcmp(kind, "copy")) return std::make_unique<Copy>();
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) { return count(make(argc > 1 ? argv[1] : "")); }
