// Breadth-first search level by level; the host reads a flag after every level, as the classic program does.
#include "program.h"

struct Graph {
  std::vector<int> first, target;
};

// Every node leads to the next one and to a few random ones, so that all are reached.
static Graph random_graph(int nodes, int degree) {
  Random random(4);
  Graph graph;
  for (int node = 0; node < nodes; ++node) {
    graph.first.push_back(static_cast<int>(graph.target.size()));
    graph.target.push_back((node + 1) % nodes);
    for (int edge = 1; edge < degree; ++edge) graph.target.push_back(random.below(nodes));
  }
  graph.first.push_back(static_cast<int>(graph.target.size()));
  return graph;
}

__global__ void start(int* level, int nodes, int source) {
  const int node = blockIdx.x * blockDim.x + threadIdx.x;
  if (node < nodes) level[node] = node == source ? 0 : -1;
}

__global__ void step(const int* first, const int* target, int* level, int nodes, int depth, int* more) {
  const int node = blockIdx.x * blockDim.x + threadIdx.x;
  if (node >= nodes || level[node] != depth) return;
  bool found = false;
  for (int edge = first[node]; edge < first[node + 1]; ++edge) {
    const int next = target[edge];
    if (level[next] >= 0) continue;
    level[next] = depth + 1;
    found = true;
  }
  if (found) *more = 1;
}

struct Search {
  const Graph& graph;
  DeviceBuffer<int> first{graph.first.size()}, target{graph.target.size()}, level{graph.first.size() - 1}, more{1};

  explicit Search(const Graph& from) : graph(from) {
    first.put(graph.first);
    target.put(graph.target);
  }
  void run(int source) {
    const int nodes = static_cast<int>(graph.first.size()) - 1, blocks = (nodes + 255) / 256;
    start<<<blocks, 256>>>(level.get(), nodes, source);
    int again = 1;
    for (int depth = 0; again; ++depth) {
      again = 0;
      CHECK(cudaMemcpy(more.get(), &again, sizeof again, cudaMemcpyHostToDevice));
      step<<<blocks, 256>>>(first.get(), target.get(), level.get(), nodes, depth, more.get());
      CHECK(cudaMemcpy(&again, more.get(), sizeof again, cudaMemcpyDeviceToHost));
    }
  }
};

static std::vector<int> levels_on_cpu(const Graph& graph, int source) {
  std::vector<int> level(graph.first.size() - 1, -1), queue{source};
  level[source] = 0;
  for (size_t at = 0; at < queue.size(); ++at)
    for (int edge = graph.first[queue[at]]; edge < graph.first[queue[at] + 1]; ++edge) {
      int& next = level[graph.target[edge]];
      if (next >= 0) continue;
      next = level[queue[at]] + 1;
      queue.push_back(graph.target[edge]);
    }
  return level;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int nodes = scale.of(1 << 21, 1000), sources = scale.of(500, 2);
  const Graph graph = random_graph(nodes, 6);
  CHECK(cudaFree(nullptr));
  const double begin = begin_steady();
  Search search(graph);
  for (int i = 0; i < sources; ++i) search.run(static_cast<int>(int64_t{nodes} * i / sources));
  const auto level = search.level.fetch();
  const double steady = now_us() - begin;
  return finish(steady, level == levels_on_cpu(graph, static_cast<int>(int64_t{nodes} * (sources - 1) / sources)));
}
