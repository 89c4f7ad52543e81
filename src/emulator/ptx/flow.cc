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

// Immediate post-dominators: the iteration of Cooper, Harvey and Kennedy on the reversed graph.
class PostDominators {
 public:
  explicit PostDominators(const std::vector<Block>& blocks)
      : blocks_(blocks), order_(blocks.size(), -1), parent_(blocks.size(), -1) {
    number_from_exit();
    std::size_t exit = blocks.size() - 1;
    parent_[exit] = static_cast<int>(exit);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = postorder_.size() - 1; i-- > 0;) {
        changed |= update(postorder_[i]);
      }
    }
  }

  int parent(int block) const { return parent_[static_cast<std::size_t>(block)]; }

 private:
  void number_from_exit() {
    struct Visit {
      int block;
      std::size_t next;
    };
    std::vector<char> seen(blocks_.size(), 0);
    int exit = static_cast<int>(blocks_.size()) - 1;
    std::vector<Visit> stack{{exit, 0}};
    seen[static_cast<std::size_t>(exit)] = 1;
    while (!stack.empty()) {
      auto& [block, next] = stack.back();
      const auto& predecessors = blocks_[static_cast<std::size_t>(block)].predecessors;
      if (next == predecessors.size()) {
        order_[static_cast<std::size_t>(block)] = static_cast<int>(postorder_.size());
        postorder_.push_back(block);
        stack.pop_back();
        continue;
      }
      int predecessor = predecessors[next++];
      if (!seen[static_cast<std::size_t>(predecessor)]) {
        seen[static_cast<std::size_t>(predecessor)] = 1;
        stack.push_back({predecessor, 0});
      }
    }
  }

  bool update(int block) {
    int common = -1;
    for (int successor : blocks_[static_cast<std::size_t>(block)].successors) {
      if (parent(successor) < 0) continue;
      common = common < 0 ? successor : intersect(common, successor);
    }
    if (common == parent(block)) return false;
    parent_[static_cast<std::size_t>(block)] = common;
    return true;
  }

  int intersect(int a, int b) const {
    while (a != b) {
      int& lower = order(a) < order(b) ? a : b;
      lower = parent(lower);
    }
    return a;
  }

  int order(int block) const { return order_[static_cast<std::size_t>(block)]; }

  const std::vector<Block>& blocks_;
  std::vector<int> order_;
  std::vector<int> parent_;
  std::vector<int> postorder_;
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
