#include "emulator/exec/reach.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

namespace warploom::emulator {
namespace {

using ptx::Operand;

struct Edges {
  std::vector<int> callees;    // functions that are called by name
  std::vector<int> taken;      // functions whose address is used
  bool through_pointer = false;
};

class CallGraph {
 public:
  explicit CallGraph(const ptx::Module& module) {
    for (std::size_t i = 0; i < module.functions.size(); ++i) {
      numbers_.emplace(module.functions[i].name, static_cast<int>(i));
    }
    for (const ptx::Function& function : module.functions) edges_.push_back(edges_of(function));
    for (const Edges& edges : edges_) {
      pointed_to_.insert(pointed_to_.end(), edges.taken.begin(), edges.taken.end());
    }
    for (const ptx::Variable* variable : module.globals) {
      for (const ptx::Relocation& relocation : variable->relocations) {
        add(pointed_to_, relocation.name);
      }
    }
  }

  // What a call by `from` can lead to, in the order of discovery; `from` itself if it is recursive.
  std::vector<int> reached(int from) const {
    std::vector<int> found;
    std::vector<char> seen(edges_.size(), 0);
    auto visit = [&](int function) {
      const Edges& edges = edges_[static_cast<std::size_t>(function)];
      for (const auto* list : {&edges.callees, edges.through_pointer ? &pointed_to_ : nullptr}) {
        if (list == nullptr) continue;
        for (int next : *list) {
          if (seen[static_cast<std::size_t>(next)]) continue;
          seen[static_cast<std::size_t>(next)] = 1;
          found.push_back(next);
        }
      }
    };
    visit(from);
    for (std::size_t i = 0; i < found.size(); ++i) visit(found[i]);
    return found;
  }

  int number(const std::string& name) const {
    auto entry = numbers_.find(name);
    return entry == numbers_.end() ? -1 : entry->second;
  }

 private:
  void add(std::vector<int>& list, const std::string& name) const {
    int index = number(name);
    if (index >= 0) list.push_back(index);
  }

  Edges edges_of(const ptx::Function& function) const {
    Edges edges;
    for (const ptx::Instruction& instruction : function.code) {
      bool calls = instruction.opcode == "call";
      for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
        const Operand& operand = instruction.operands[i];
        bool callee = calls && i == 0;
        if (callee && operand.kind == Operand::kRegister) edges.through_pointer = true;
        if (operand.kind == Operand::kName) add(callee ? edges.callees : edges.taken, operand.name);
      }
    }
    return edges;
  }

  std::unordered_map<std::string, int> numbers_;
  std::vector<Edges> edges_;
  std::vector<int> pointed_to_;
};

}  // namespace

std::vector<ProgramFunction> reachable_functions(const ptx::Module& module,
                                                 const ptx::Function& entry) {
  CallGraph graph(module);
  int first = graph.number(entry.name);
  std::vector<int> indices = graph.reached(first);
  indices.erase(std::remove(indices.begin(), indices.end(), first), indices.end());
  indices.insert(indices.begin(), first);
  std::vector<ProgramFunction> result;
  for (int index : indices) {
    ProgramFunction function;
    function.source = &module.functions[static_cast<std::size_t>(index)];
    function.index = index;
    std::vector<int> callees = graph.reached(index);
    function.recursive = std::find(callees.begin(), callees.end(), index) != callees.end();
    result.push_back(std::move(function));
  }
  return result;
}

}  // namespace warploom::emulator
