#include "backend/device/soft/codegen/graph.h"

#include <algorithm>

namespace bandsaw::soft {

std::vector<int> reverse_post_order(const Graph& graph, const std::vector<int>& rank) {
  std::vector<int> order;
  std::vector<uint8_t> seen(graph.size());
  struct Frame {
    std::vector<int> next;
    size_t i;
    int block;
  };
  auto sorted = [&](int b) {
    std::vector<int> next = graph[b];
    std::stable_sort(next.begin(), next.end(), [&](int x, int y) { return rank[x] < rank[y]; });
    return next;
  };
  std::vector<Frame> stack;
  stack.push_back({sorted(0), 0, 0});
  seen[0] = 1;
  while (!stack.empty()) {
    Frame& f = stack.back();
    if (f.i < f.next.size()) {
      int s = f.next[f.i++];
      if (!seen[s]) {
        seen[s] = 1;
        stack.push_back({sorted(s), 0, s});
      }
    } else {
      order.push_back(f.block);
      stack.pop_back();
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<int> dominators(const Graph& graph, const std::vector<int>& order, const std::vector<int>& position) {
  std::vector<std::vector<int>> predecessors(graph.size());
  for (int b : order)
    for (int s : graph[b]) predecessors[s].push_back(b);
  std::vector<int> idom(graph.size(), -1);
  idom[order[0]] = order[0];
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 1; i < order.size(); ++i) {
      int best = -1;
      for (int p : predecessors[order[i]]) {
        if (idom[p] < 0) continue;
        if (best < 0) {
          best = p;
          continue;
        }
        int a = p, b = best;
        while (a != b) {
          while (position[a] > position[b]) a = idom[a];
          while (position[b] > position[a]) b = idom[b];
        }
        best = a;
      }
      if (idom[order[i]] != best) {
        idom[order[i]] = best;
        changed = true;
      }
    }
  }
  idom[order[0]] = -1;
  return idom;
}

bool dominates(const std::vector<int>& idom, const std::vector<int>& position, int a, int b) {
  while (b >= 0 && position[b] > position[a]) b = idom[b];
  return a == b;
}

std::vector<int> loop_depths(const Graph& graph, const std::vector<int>& order, const std::vector<int>& position,
                             const std::vector<int>& idom) {
  std::vector<std::vector<int>> predecessors(graph.size());
  for (int b : order)
    for (int s : graph[b]) predecessors[s].push_back(b);
  std::vector<int> depth(graph.size());
  for (int header : order) {
    std::vector<bool> in(graph.size());
    std::vector<int> work;
    for (int p : predecessors[header])
      if (dominates(idom, position, header, p)) work.push_back(p);
    if (work.empty()) continue;
    in[header] = true;
    while (!work.empty()) {
      int b = work.back();
      work.pop_back();
      if (in[b]) continue;
      in[b] = true;
      for (int p : predecessors[b]) work.push_back(p);
    }
    for (size_t b = 0; b < in.size(); ++b) depth[b] += in[b];
  }
  return depth;
}

std::vector<int> components(const Graph& graph, const std::vector<bool>& included, std::vector<bool>* cyclic) {
  int n = static_cast<int>(graph.size()), counter = 0, count = 0;
  std::vector<int> index(n, -1), low(n), component(n, -1), stack;
  struct Frame {
    int b;
    size_t i;
  };
  cyclic->clear();
  for (int root = 0; root < n; ++root) {
    if (!included[root] || index[root] >= 0) continue;
    std::vector<Frame> frames{{root, 0}};
    index[root] = low[root] = counter++;
    stack.push_back(root);
    while (!frames.empty()) {
      auto& [b, i] = frames.back();
      if (i < graph[b].size()) {
        int s = graph[b][i++];
        if (!included[s]) continue;
        if (index[s] < 0) {
          index[s] = low[s] = counter++;
          stack.push_back(s);
          frames.push_back({s, 0});
        } else if (component[s] < 0) {
          low[b] = std::min(low[b], index[s]);
        }
        continue;
      }
      int done = b;
      frames.pop_back();
      if (!frames.empty()) low[frames.back().b] = std::min(low[frames.back().b], low[done]);
      if (low[done] != index[done]) continue;
      bool cycle = stack.back() != done || std::count(graph[done].begin(), graph[done].end(), done) > 0;
      int member;
      do {
        member = stack.back();
        stack.pop_back();
        component[member] = count;
      } while (member != done);
      cyclic->push_back(cycle);
      ++count;
    }
  }
  return component;
}

std::vector<BitSet> meeting_blocks(const Graph& graph, const std::vector<int>& order) {
  std::vector<BitSet> sets(graph.size(), BitSet(graph.size(), true));
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      BitSet set(graph.size(), true);
      for (int s : graph[*it]) set.intersect(sets[s]);
      set.set(*it);
      if (!(set == sets[*it])) {
        sets[*it] = std::move(set);
        changed = true;
      }
    }
  }
  return sets;
}

std::vector<bool> between(const Graph& graph, int b, int stop) {
  std::vector<bool> in(graph.size());
  std::vector<int> work(graph[b]);
  while (!work.empty()) {
    int x = work.back();
    work.pop_back();
    if (x == stop || in[x]) continue;
    in[x] = true;
    work.insert(work.end(), graph[x].begin(), graph[x].end());
  }
  return in;
}

}  // namespace bandsaw::soft
