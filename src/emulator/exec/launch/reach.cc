#include "emulator/exec/launch/reach.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace warploom::emulator {
namespace {

using ptx::Operand;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Tarjan's strongly connected components, without recursion: call chains may be long.
class Components {
 public:
  // Calls visit(members) for each.
  template <class Visit>
  static void each(const std::vector<std::vector<int>>& edges, Visit visit) {
    Components(edges).run(visit);
  }

 private:
  struct Step {
    int node;
    std::size_t next;  // edge to follow
  };

  explicit Components(const std::vector<std::vector<int>>& edges)
      : edges_(edges), number_(edges.size(), -1), lowest_(edges.size()), open_(edges.size(), 0) {}

  template <class Visit>
  void run(Visit visit) {
    for (std::size_t root = 0; root < edges_.size(); ++root) {
      if (number_[root] < 0) walk(static_cast<int>(root), visit);
    }
  }

  template <class Visit>
  void walk(int root, Visit visit) {
    std::vector<Step> path;
    enter(root, path);
    while (!path.empty()) {
      Step& step = path.back();
      const int node = step.node;
      if (step.next < edges_[at(node)].size()) {
        const int to = edges_[at(node)][step.next++];
        if (number_[at(to)] < 0) {
          enter(to, path);
        } else if (open_[at(to)]) {
          lowest_[at(node)] = std::min(lowest_[at(node)], number_[at(to)]);
        }
        continue;
      }
      path.pop_back();
      if (!path.empty()) {
        int& outer = lowest_[at(path.back().node)];
        outer = std::min(outer, lowest_[at(node)]);
      }
      if (lowest_[at(node)] == number_[at(node)]) close(node, visit);
    }
  }

  void enter(int node, std::vector<Step>& path) {
    number_[at(node)] = lowest_[at(node)] = count_++;
    open_[at(node)] = 1;
    stack_.push_back(node);
    path.push_back({node, 0});
  }

  template <class Visit>
  void close(int node, Visit visit) {
    auto first = std::find(stack_.rbegin(), stack_.rend(), node).base() - 1;
    std::vector<int> members(first, stack_.end());
    stack_.erase(first, stack_.end());
    for (int member : members) open_[at(member)] = 0;
    visit(members);
  }

  const std::vector<std::vector<int>>& edges_;
  std::vector<int> number_;  // in the order of discovery
  std::vector<int> lowest_;
  std::vector<char> open_;
  std::vector<int> stack_;
  int count_ = 0;
};

}  // namespace

CallGraph::CallGraph(const ptx::Module& module)
    : module_(module),
      pointers_(static_cast<int>(module.functions.size())),
      edges_(module.functions.size() + 1),
      recursive_(edges_.size(), 0),
      seen_(edges_.size(), 0) {
  for (std::size_t i = 0; i < module.functions.size(); ++i) {
    add_edges(static_cast<int>(i), module.functions[i]);
  }
  for (const ptx::Variable* variable : module.globals) {
    for (const ptx::Relocation& relocation : variable->relocations) {
      add_edge(pointers_, relocation.name);
    }
  }
  find_cycles();
}

void CallGraph::add_edges(int from, const ptx::Function& function) {
  for (const ptx::Instruction& instruction : function.code) {
    bool calls = instruction.opcode == "call";
    for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
      const Operand& operand = instruction.operands[i];
      bool callee = calls && i == 0;
      if (callee && operand.kind == Operand::kRegister) edges_[at(from)].push_back(pointers_);
      if (operand.kind == Operand::kName) add_edge(callee ? from : pointers_, operand.name);
    }
  }
}

void CallGraph::add_edge(int from, const std::string& to) {
  int index = module_.find_function(to);
  if (index >= 0) edges_[at(from)].push_back(index);
}

void CallGraph::find_cycles() {
  Components::each(edges_, [&](const std::vector<int>& members) {
    const std::vector<int>& first = edges_[at(members[0])];
    bool cycle = members.size() > 1 ||
                 std::find(first.begin(), first.end(), members[0]) != first.end();
    for (int member : members) recursive_[at(member)] = cycle ? 1 : 0;
  });
}

template <class Visit>
void CallGraph::walk(const ptx::Function& entry, Visit visit) {
  ++walks_;
  std::vector<int> found{module_.find_function(entry.name)};
  seen_[at(found[0])] = walks_;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != pointers_ && !visit(found[i])) return;
    for (int next : edges_[at(found[i])]) {
      if (std::exchange(seen_[at(next)], walks_) != walks_) found.push_back(next);
    }
  }
}

std::vector<ProgramFunction> CallGraph::reachable(const ptx::Function& entry) {
  std::vector<ProgramFunction> result;
  walk(entry, [&](int index) {
    ProgramFunction function;
    function.source = &module_.functions[at(index)];
    function.index = index;
    function.recursive = recursive_[at(index)] != 0;
    result.push_back(std::move(function));
    return true;
  });
  return result;
}

uint64_t CallGraph::count_instructions(const ptx::Function& entry, uint64_t most) {
  uint64_t count = 0;
  walk(entry, [&](int index) {
    count += module_.functions[at(index)].code.size();
    return count <= most;
  });
  return count;
}

}  // namespace warploom::emulator
