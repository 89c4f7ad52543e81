#include "emulator/ptx/flow.h"

#include <algorithm>
#include <cstddef>

namespace warploom::emulator::ptx {
namespace {

struct Block {
  int begin = 0;
  int end = 0;  // one past the last instruction
  std::vector<int> successors;
  std::vector<int> predecessors;
};

bool ends_thread(const Instruction& instruction) {
  return instruction.opcode == "ret" || instruction.opcode == "exit" ||
         instruction.opcode == "trap";
}

bool ends_block(const Instruction& instruction) {
  return !instruction.targets.empty() || ends_thread(instruction);
}

// Blocks in program order; a virtual exit block, which is empty, comes last.
std::vector<Block> make_blocks(const Function& function) {
  const auto& code = function.code;
  int count = static_cast<int>(code.size());
  std::vector<char> leads(code.size() + 1, 0);
  leads[0] = 1;
  for (int i = 0; i < count; ++i) {
    const Instruction& instruction = code[static_cast<std::size_t>(i)];
    for (int target : instruction.targets) leads[static_cast<std::size_t>(target)] = 1;
    if (ends_block(instruction)) leads[static_cast<std::size_t>(i) + 1] = 1;
  }
  std::vector<Block> blocks;
  std::vector<int> block_of(code.size() + 1);
  for (int i = 0; i < count; ++i) {
    if (leads[static_cast<std::size_t>(i)]) {
      blocks.emplace_back();
      blocks.back().begin = i;
    }
    blocks.back().end = i + 1;
    block_of[static_cast<std::size_t>(i)] = static_cast<int>(blocks.size()) - 1;
  }
  int exit = static_cast<int>(blocks.size());
  block_of[code.size()] = exit;
  blocks.emplace_back();
  for (int b = 0; b < exit; ++b) {
    Block& block = blocks[static_cast<std::size_t>(b)];
    const Instruction& last = code[static_cast<std::size_t>(block.end) - 1];
    for (int target : last.targets) {
      block.successors.push_back(block_of[static_cast<std::size_t>(target)]);
    }
    bool unconditional = !last.targets.empty() && last.guard < 0;
    if (ends_thread(last)) block.successors.push_back(exit);
    if (!unconditional && !(ends_thread(last) && last.guard < 0)) {
      block.successors.push_back(block_of[static_cast<std::size_t>(block.end)]);
    }
    for (int successor : block.successors) {
      blocks[static_cast<std::size_t>(successor)].predecessors.push_back(b);
    }
  }
  return blocks;
}

// Immediate post-dominators: those that dominate in the reversed graph, whose root is the exit, by
// the algorithm of Lengauer and Tarjan with path compression. Simpler ones take quadratic time for
// programs that nobody writes.
class PostDominators {
 public:
  explicit PostDominators(const std::vector<Block>& blocks)
      : blocks_(blocks),
        number_(blocks.size(), -1),
        tree_parent_(blocks.size(), -1),
        semi_(blocks.size(), -1),
        ancestor_(blocks.size(), -1),
        best_(blocks.size()),
        dominator_(blocks.size(), -1) {
    number_from_exit();
    find_dominators();
  }

  // The exit's is itself; -1 for a block from which no path leads to the exit.
  int parent(int block) const { return dominator_[at(block)]; }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  // Numbers in the order of a depth-first walk.
  void number_from_exit() {
    struct Visit {
      int block;
      std::size_t next;
    };
    std::vector<Visit> path;
    auto enter = [&](int block, int from) {
      number_[at(block)] = semi_[at(block)] = static_cast<int>(order_.size());
      tree_parent_[at(block)] = from;
      best_[at(block)] = block;
      order_.push_back(block);
      path.push_back({block, 0});
    };
    enter(static_cast<int>(blocks_.size()) - 1, -1);
    while (!path.empty()) {
      Visit& visit = path.back();
      const std::vector<int>& predecessors = blocks_[at(visit.block)].predecessors;
      if (visit.next == predecessors.size()) {
        path.pop_back();
        continue;
      }
      const int next = predecessors[visit.next++];
      if (number_[at(next)] < 0) enter(next, visit.block);
    }
  }

  void find_dominators() {
    std::vector<std::vector<int>> buckets(blocks_.size());
    for (std::size_t i = order_.size() - 1; i > 0; --i) {
      const int block = order_[i], from = tree_parent_[at(block)];
      for (int successor : blocks_[at(block)].successors) {
        if (number_[at(successor)] < 0) continue;
        semi_[at(block)] = std::min(semi_[at(block)], semi_[at(evaluate(successor))]);
      }
      buckets[at(order_[at(semi_[at(block)])])].push_back(block);
      ancestor_[at(block)] = from;
      for (int other : buckets[at(from)]) {
        const int best = evaluate(other);
        dominator_[at(other)] = semi_[at(best)] < semi_[at(other)] ? best : from;
      }
      buckets[at(from)].clear();
    }
    dominator_[at(order_[0])] = order_[0];
    for (std::size_t i = 1; i < order_.size(); ++i) {
      int& dominator = dominator_[at(order_[i])];
      if (dominator != order_[at(semi_[at(order_[i])])]) dominator = dominator_[at(dominator)];
    }
  }

  // The block with the least semi-dominator on the way to the root of the forest.
  int evaluate(int block) {
    std::vector<int> way;
    for (int up = block; ancestor_[at(up)] >= 0 && ancestor_[at(ancestor_[at(up)])] >= 0;
         up = ancestor_[at(up)]) {
      way.push_back(up);
    }
    // From the root on, each takes over what its ancestor knows.
    for (auto step = way.rbegin(); step != way.rend(); ++step) {
      const int up = ancestor_[at(*step)];
      if (semi_[at(best_[at(up)])] < semi_[at(best_[at(*step)])]) {
        best_[at(*step)] = best_[at(up)];
      }
      ancestor_[at(*step)] = ancestor_[at(up)];
    }
    return best_[at(block)];
  }

  const std::vector<Block>& blocks_;
  std::vector<int> number_;       // -1: not reached
  std::vector<int> order_;        // blocks by number
  std::vector<int> tree_parent_;
  std::vector<int> semi_;         // numbers of semi-dominators
  std::vector<int> ancestor_;     // in the forest of blocks that are done; -1 for a root
  std::vector<int> best_;
  std::vector<int> dominator_;
};

}  // namespace

std::vector<int> reconvergence_points(const Function& function) {
  std::vector<Block> blocks = make_blocks(function);
  PostDominators dominators(blocks);
  std::vector<int> result(function.code.size(), -1);
  int exit = static_cast<int>(blocks.size()) - 1;
  for (int b = 0; b < exit; ++b) {
    const Block& block = blocks[static_cast<std::size_t>(b)];
    std::size_t last = static_cast<std::size_t>(block.end) - 1;
    const Instruction& instruction = function.code[last];
    bool diverges = !instruction.targets.empty() &&
                    (instruction.guard >= 0 || instruction.opcode == "brx");
    int join = dominators.parent(b);
    if (diverges && join >= 0 && join != exit) {
      result[last] = blocks[static_cast<std::size_t>(join)].begin;
    }
  }
  return result;
}

}  // namespace warploom::emulator::ptx
