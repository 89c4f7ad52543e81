// CUDA graphs: launches, copies and host functions that are executed as often as asked, after those
// that they need.

#ifndef WARPLOOM_EMULATOR_DRIVER_GRAPH_H_
#define WARPLOOM_EMULATOR_DRIVER_GRAPH_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/driver/handles.h"

namespace warploom::emulator {

// A launch, a copy or a host function; returns a CUresult.
using Work = std::function<int()>;

// CUgraphNodeType.
enum class NodeKind : int {
  kKernel = 0,
  kCopy = 1,
  kFill = 2,
  kHost = 3,
  kGraph = 4,
  kEmpty = 5,
  kEventWait = 6,
  kEventRecord = 7,
};

struct Graph;

struct Node {
  NodeKind kind = NodeKind::kEmpty;
  Work work;                   // none: it does nothing
  std::vector<Node*> needs;    // of the same graph
  std::shared_ptr<Graph> child;
  void* handle = nullptr;
};

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;
  std::vector<std::shared_ptr<void>> keeps;  // objects of the program that live as long

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();
  Node* add(NodeKind kind, Work work, std::vector<Node*> needs);
  bool has(const Node* node) const;
  std::vector<std::pair<Node*, Node*>> edges() const;  // (needed, who needs it)
};

Handles<Graph>& graphs();
Handles<Node>& graph_nodes();

// The nodes in an order that respects what they need; empty if that is a circle.
std::vector<const Node*> ordered(const Graph& graph);
// The same nodes with handles of their own.
std::shared_ptr<Graph> copy_graph(const Graph& graph);

// What an instantiated graph executes; nothing that happens to the graph changes it.
struct GraphProgram {
  std::vector<Work> works;
  std::vector<std::shared_ptr<void>> keeps;

  int execute() const;  // the first error ends it
};

Handles<GraphProgram>& graph_programs();

// nullptr if the graph has a circle.
std::shared_ptr<GraphProgram> instantiate(const Graph& graph);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_GRAPH_H_
