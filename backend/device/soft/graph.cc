#include "backend/device/soft/conditional.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace bandsaw::soft {

NodeContent copy_content(const NodeContent& content) {
  NodeContent copy = content;
  if (copy.parameter_bytes.empty() && !content.launch.parameters.empty()) {
    copy.parameter_bytes.assign(content.launch.parameters.begin(), content.launch.parameters.end());
  }
  copy.launch.parameters = copy.parameter_bytes;
  return copy;
}

bool SoftGraph::reaches(const SoftNode* from, const SoftNode* to) {
  std::vector<const SoftNode*> open{from};
  std::unordered_set<const SoftNode*> seen;
  while (!open.empty()) {
    const SoftNode* node = open.back();
    open.pop_back();
    if (node == to) return true;
    if (!seen.insert(node).second) continue;
    open.insert(open.end(), node->dependents.begin(), node->dependents.end());
  }
  return false;
}

bool SoftGraph::has_edge(const SoftNode& from, const SoftNode& to) {
  return std::find(from.dependents.begin(), from.dependents.end(), &to) != from.dependents.end();
}

void SoftGraph::add_edge(SoftNode& from, SoftNode& to) {
  from.dependents.push_back(&to);
  to.dependencies.push_back(&from);
}

bool SoftGraph::remove_edge(SoftNode& from, SoftNode& to) {
  return std::erase(from.dependents, &to) && std::erase(to.dependencies, &from);
}

bool SoftGraph::has_allocations() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const SoftNodeRef& node) {
    const CUgraphNodeType type = node->content.type;
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (type == CU_GRAPH_NODE_TYPE_GRAPH && as(node->content.child).has_allocations());
  });
}

bool SoftGraph::holds(const SoftGraph* other, int depth) const {
  if (this == other || depth < 0) return true;
  const auto within = [&](const SoftGraphRef& body) { return body->holds(other, depth - 1); };
  return std::any_of(nodes.begin(), nodes.end(), [&](const SoftNodeRef& node) {
    const GraphRef& child = node->content.child;
    return (child && as(child).holds(other, depth - 1)) ||
           std::any_of(node->bodies.begin(), node->bodies.end(), within);
  });
}

std::shared_ptr<SoftGraph> SoftGraph::clone() const {
  auto copy = std::make_shared<SoftGraph>();
  copy->conditions = conditions;
  std::unordered_map<const SoftNode*, SoftNode*> twin;
  for (const SoftNodeRef& node : nodes) {
    auto made = std::make_shared<SoftNode>();
    made->graph = copy;
    made->content = copy_content(node->content);
    if (made->content.child) made->content.child = as(made->content.child).clone();
    made->condition = node->condition;
    for (const auto& body : node->bodies) made->bodies.push_back(body->clone());
    made->original = node;
    twin[node.get()] = made.get();
    copy->nodes.push_back(std::move(made));
  }
  for (const SoftNodeRef& node : nodes) {
    SoftNode* made = twin[node.get()];
    for (const SoftNode* other : node->dependencies) made->dependencies.push_back(twin[other]);
    for (const SoftNode* other : node->dependents) made->dependents.push_back(twin[other]);
  }
  return copy;
}

std::vector<SoftNodeRef> SoftGraph::in_order() const {
  std::unordered_map<const SoftNode*, size_t> waiting;
  std::unordered_map<const SoftNode*, SoftNodeRef> reference;
  std::vector<SoftNodeRef> order;
  for (const SoftNodeRef& node : nodes) {
    waiting[node.get()] = node->dependencies.size();
    reference[node.get()] = node;
    if (node->dependencies.empty()) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const SoftNode* next : SoftNodeRef(order[i])->dependents) {
      if (--waiting[next] == 0) order.push_back(reference[next]);
    }
  }
  return order;
}

bool SoftGraph::has_cycle() const {
  if (in_order().size() != nodes.size()) return true;
  return std::any_of(nodes.begin(), nodes.end(), [](const SoftNodeRef& node) {
    const GraphRef& child = node->content.child;
    return (child && as(child).has_cycle()) ||
           std::any_of(node->bodies.begin(), node->bodies.end(), [](const auto& body) { return body->has_cycle(); });
  });
}

std::vector<uint32_t> unfold(const SoftGraph& graph, int64_t before, std::vector<SoftExec::Step>* steps) {
  std::unordered_map<const SoftNode*, uint32_t> end_of;
  std::vector<uint32_t> leaves;
  for (const SoftNodeRef& node : graph.in_order()) {
    SoftExec::Step step;
    step.node = node;
    step.content = copy_content(node->content);
    step.reservation = node->reservation;
    step.condition = node->condition;
    for (const auto& body : node->bodies) {
      auto made = std::make_shared<ExecBody>();
      made->leaves = unfold(*body, -1, &made->steps);
      step.bodies.push_back(std::move(made));
    }
    for (const SoftNode* other : node->dependencies) step.after.push_back(end_of[other]);
    if (node->dependencies.empty() && before >= 0) step.after.push_back(static_cast<uint32_t>(before));
    const GraphRef child = std::move(step.content.child);
    steps->push_back(std::move(step));
    auto at = static_cast<uint32_t>(steps->size() - 1);
    if (child) {
      SoftExec::Step end;
      end.after = unfold(as(child), at, steps);
      if (end.after.empty()) end.after.push_back(at);
      steps->push_back(std::move(end));
      at = static_cast<uint32_t>(steps->size() - 1);
    }
    end_of[node.get()] = at;
    if (node->dependents.empty()) leaves.push_back(at);
  }
  return leaves;
}

SoftGraphRef fold(const SoftExec& exec) {
  auto graph = std::make_shared<SoftGraph>();
  for (const SoftExec::Step& step : exec.steps) {
    auto node = std::make_shared<SoftNode>();
    node->graph = graph;
    if (step.enabled && step.content.type != CU_GRAPH_NODE_TYPE_GRAPH) node->content = copy_content(step.content);
    for (const uint32_t before : step.after) SoftGraph::add_edge(*graph->nodes[before], *node);
    graph->nodes.push_back(std::move(node));
  }
  return graph;
}

}  // namespace bandsaw::soft
