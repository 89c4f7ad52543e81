#include "emulator/check/accumulator_watch.h"

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/check/checker.h"

namespace warploom::emulator {
namespace {

using ptx::Instruction;
using ptx::Operand;

bool is_multiply(const Instruction& instruction) {
  return instruction.opcode == "wgmma" && !instruction.modifiers.empty() &&
         instruction.modifiers.front() == "mma_async";
}

bool is_tensor_load(const Instruction& instruction) {
  return instruction.opcode == "tcgen05" && !instruction.modifiers.empty() &&
         instruction.modifiers.front() == "ld";
}

// mov of one whole register to another.
bool is_copy(const Instruction& instruction) {
  return instruction.opcode == "mov" && instruction.operands.size() == 2 &&
         instruction.operands[0].kind == Operand::kRegister &&
         instruction.operands[1].kind == Operand::kRegister;
}

// Whether the first operand is written.
bool has_destination(const Instruction& instruction) {
  static const std::set<std::string> kWithout = {
      "st",  "red", "bar",      "barrier",  "cp",      "bra",
      "brx", "prefetch", "stmatrix", "tcgen05", "nanosleep"};
  if (is_tensor_load(instruction)) return true;
  if (!instruction.operands.empty() && instruction.operands[0].kind == Operand::kAddress) {
    return false;
  }
  return kWithout.count(instruction.opcode) == 0;
}

void add_registers(const Operand& operand, std::vector<int>& registers) {
  if (operand.kind == Operand::kRegister) registers.push_back(operand.index);
  for (const Operand& element : operand.elements) add_registers(element, registers);
}

struct Uses {
  std::vector<int> reads;
  std::vector<int> writes;
};

Uses uses_of(const Instruction& instruction) {
  Uses uses;
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    bool writes = i == 0 && has_destination(instruction);
    add_registers(instruction.operands[i], writes ? uses.writes : uses.reads);
  }
  return uses;
}

// Registers that a value gets to, or comes from, through copies.
void close(std::set<int>& registers, const std::vector<std::pair<int, int>>& copies) {
  std::unordered_map<int, std::vector<int>> next;
  for (auto [from, to] : copies) next[from].push_back(to);
  std::vector<int> left(registers.begin(), registers.end());
  while (!left.empty()) {
    auto targets = next.find(left.back());
    left.pop_back();
    if (targets == next.end()) continue;
    for (int to : targets->second) {
      if (registers.insert(to).second) left.push_back(to);
    }
  }
}

// Those that tcgen05.ld writes, and those that mov takes these values to, in parts or in pairs.
std::set<int> loaded_registers(const ptx::Function& function) {
  std::set<int> loaded;
  std::vector<std::pair<int, int>> copies;
  for (const Instruction& instruction : function.code) {
    const bool loads = is_tensor_load(instruction);
    if (!loads && instruction.opcode != "mov") continue;
    Uses uses = uses_of(instruction);
    if (loads) loaded.insert(uses.writes.begin(), uses.writes.end());
    for (int from : loads ? std::vector<int>{} : uses.reads) {
      for (int to : uses.writes) copies.push_back({from, to});
    }
  }
  if (!loaded.empty()) close(loaded, copies);
  return loaded;
}

std::set<int> watched_registers(const ptx::Function& function) {
  std::set<int> results, operands;
  std::vector<std::pair<int, int>> forward, backward;
  for (const Instruction& instruction : function.code) {
    if (is_copy(instruction)) {
      int to = instruction.operands[0].index, from = instruction.operands[1].index;
      forward.push_back({from, to});
      backward.push_back({to, from});
    } else if (is_multiply(instruction)) {
      std::vector<int> d, a;
      add_registers(instruction.operands[0], d);
      if (instruction.operands[1].kind == Operand::kVector) {
        add_registers(instruction.operands[1], a);
      }
      results.insert(d.begin(), d.end());
      operands.insert(d.begin(), d.end());
      operands.insert(a.begin(), a.end());
    }
  }
  close(results, forward);
  close(operands, backward);
  results.insert(operands.begin(), operands.end());
  std::set<int> loaded = loaded_registers(function);
  results.insert(loaded.begin(), loaded.end());
  return results;
}

Step watch_registers(Warp& warp, const Op& op, uint32_t active) {
  const Program& program = warp.program();
  const WatchedOp& watched =
      *program.accumulators->find(static_cast<uint32_t>(&op - program.ops.data()));
  if (Checker* checker = checker_of(warp.cluster())) checker->registers(warp, op, watched);
  return watched.run(warp, op, active);
}

void watch_function(Program& program, const ProgramFunction& function, AccumulatorWatch& watch) {
  std::set<int> registers = watched_registers(*function.source);
  if (registers.empty()) return;
  std::vector<int32_t> numbers(function.source->registers.size(), -1);
  for (int index : registers) {
    numbers[static_cast<std::size_t>(index)] = static_cast<int32_t>(watch.registers++);
  }
  auto numbers_of = [&](const std::vector<int>& indices) {
    std::vector<uint32_t> result;
    for (int index : indices) {
      int32_t found = numbers[static_cast<std::size_t>(index)];
      if (found >= 0) result.push_back(static_cast<uint32_t>(found));
    }
    return result;
  };
  auto entry = static_cast<std::size_t>(function.entry);
  for (std::size_t i = entry; i < entry + function.source->code.size(); ++i) {
    Op& op = program.ops[i];
    const Instruction& instruction = *op.source;
    if (op.run == nullptr || instruction.opcode == "call") continue;
    WatchedOp watched;
    Uses uses = uses_of(instruction);
    if (is_multiply(instruction)) {
      watched.kind = WatchedOp::kMultiply;
      uses.reads.clear();
      if (instruction.operands[1].kind == Operand::kVector) {
        add_registers(instruction.operands[1], uses.reads);
      }
    } else if (is_tensor_load(instruction)) {
      watched.kind = WatchedOp::kTensorLoad;
    } else if (instruction.opcode == "mov") {
      watched.kind = WatchedOp::kMove;
    }
    watched.reads = numbers_of(uses.reads);
    watched.writes = numbers_of(uses.writes);
    if (watched.reads.empty() && watched.writes.empty()) continue;
    watched.run = op.run;
    op.run = watch_registers;
    watch.index[i] = static_cast<int32_t>(watch.ops.size());
    watch.ops.push_back(std::move(watched));
  }
}

}  // namespace

void watch_accumulators(Program& program) {
  auto watch = std::make_shared<AccumulatorWatch>();
  watch->index.assign(program.ops.size(), -1);
  for (const ProgramFunction& function : program.functions) {
    watch_function(program, function, *watch);
  }
  if (watch->registers != 0) program.accumulators = std::move(watch);
}

}  // namespace warploom::emulator
