#include "emulator/driver/graph.h"

#include <algorithm>
#include <map>
#include <set>

namespace warploom::emulator {

// Never destroyed: programs end with graphs in use.
Handles<Graph>& graphs() {
  static auto* handles = new Handles<Graph>;
  return *handles;
}

Handles<Node>& graph_nodes() {
  static auto* handles = new Handles<Node>;
  return *handles;
}

Handles<GraphProgram>& graph_programs() {
  static auto* handles = new Handles<GraphProgram>;
  return *handles;
}

Graph::~Graph() {
  for (const auto& node : nodes) graph_nodes().remove(node->handle);
}

Node* Graph::add(NodeKind kind, Work work, std::vector<Node*> needs) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->work = std::move(work);
  node->needs = std::move(needs);
  node->handle = graph_nodes().add(node);
  nodes.push_back(node);
  return node.get();
}

bool Graph::has(const Node* node) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& own) { return own.get() == node; });
}

std::vector<std::pair<Node*, Node*>> Graph::edges() const {
  std::vector<std::pair<Node*, Node*>> edges;
  for (const auto& node : nodes) {
    for (Node* needed : node->needs) edges.emplace_back(needed, node.get());
  }
  return edges;
}

std::vector<const Node*> ordered(const Graph& graph) {
  std::vector<const Node*> order;
  std::set<const Node*> done;
  // The order in which nodes were made nearly always is one: then a single pass finds it.
  for (bool moved = true; moved && order.size() < graph.nodes.size();) {
    moved = false;
    for (const auto& node : graph.nodes) {
      const bool is_ready = std::all_of(node->needs.begin(), node->needs.end(),
                                        [&](const Node* needed) { return done.count(needed) != 0; });
      if (!is_ready || !done.insert(node.get()).second) continue;
      order.push_back(node.get());
      moved = true;
    }
  }
  if (order.size() < graph.nodes.size()) order.clear();
  return order;
}

std::shared_ptr<Graph> copy_graph(const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  copy->keeps = graph.keeps;
  std::map<const Node*, Node*> twins;
  for (const auto& node : graph.nodes) {
    Node* twin = copy->add(node->kind, node->work, {});
    if (node->child != nullptr) twin->child = copy_graph(*node->child);
    twins[node.get()] = twin;
  }
  for (const auto& node : graph.nodes) {
    for (const Node* needed : node->needs) twins[node.get()]->needs.push_back(twins[needed]);
  }
  return copy;
}

int GraphProgram::execute() const {
  for (const Work& work : works) {
    if (int code = work(); code != 0) return code;
  }
  return 0;
}

std::shared_ptr<GraphProgram> instantiate(const Graph& graph) {
  const std::vector<const Node*> order = ordered(graph);
  if (order.empty() && !graph.nodes.empty()) return nullptr;
  auto program = std::make_shared<GraphProgram>();
  program->keeps = graph.keeps;
  for (const Node* node : order) {
    if (node->child != nullptr) {
      std::shared_ptr<GraphProgram> inner = instantiate(*node->child);
      if (inner == nullptr) return nullptr;
      program->works.insert(program->works.end(), inner->works.begin(), inner->works.end());
      program->keeps.insert(program->keeps.end(), inner->keeps.begin(), inner->keeps.end());
    } else if (node->work) {
      program->works.push_back(node->work);
    }
  }
  return program;
}

}  // namespace warploom::emulator
