#include "emulator/check/accumulator_watch.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/describe_op.h"

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

}  // namespace

namespace {

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

void Checker::registers(Warp& warp, const Op& op, const WatchedOp& watched) {
  WarpState& own = state(warp);
  RegisterTags& tags = own.registers;
  if (tags.tags.empty()) tags.tags.resize(program_.accumulators->registers);
  if (watched.kind == WatchedOp::kMultiply) {
    check_multiply(warp, op, watched);
    return;
  }
  if (watched.kind == WatchedOp::kMove) {
    RegisterTags::Tag tag;
    if (watched.reads.size() == 1) tag = tags.tags[watched.reads[0]];
    for (uint32_t number : watched.reads) {
      RegisterTags::Tag& from = tags.tags[number];
      if (!tags.is_loading(from)) continue;
      tag.load = from.load;
      tag.loader = from.loader;
      from.copied = true;
    }
    tag.copied = false;
    for (uint32_t number : watched.writes) tags.tags[number] = tag;
    return;
  }
  check_loading(warp, op, watched);
  if (watched.kind == WatchedOp::kTensorLoad) {
    for (uint32_t number : watched.writes) {
      tags.tags[number] = {0, 0, tags.fences + 1, op_index(op), 0, 0,
                           tags.load_waits + 1, op_index(op), false};
    }
    return;
  }
  Stamp done{warpgroup_of(warp).dimension, 0};
  for (uint32_t number : watched.reads) {
    RegisterTags::Tag& tag = tags.tags[number];
    tag.read = tags.fences + 1;
    tag.reader = op_index(op);
    done.clock = tag.group;
    if (tag.group == 0 || own.known.base.knows(done)) continue;
    const Op* multiply = &program_.ops[tag.multiply];
    if (!log_.is_new(Finding::kRegisterRace, &op, multiply)) break;
    report(Finding::kRegisterRace, &op, multiply,
           format("%s reads an accumulator of %s, which may not have been written yet. Fix: "
                  "wgmma.wait_group (0, or as many as were committed after it) before the result "
                  "is used",
                  describe(mark_of(warp, op)).c_str(),
                  describe_op(program_, *multiply).c_str()));
    break;
  }
  for (uint32_t number : watched.writes) {
    tags.tags[number] = {0, 0, tags.fences + 1, op_index(op), 0, 0, 0, 0, false};
  }
}

// Nobody may touch what a tcgen05.ld writes before the wait; another tcgen05.ld may not, either,
// but gives nobody a wrong value.
void Checker::check_loading(Warp& warp, const Op& op, const WatchedOp& watched) {
  const RegisterTags& tags = state(warp).registers;
  auto missing = [&](const RegisterTags::Tag& tag, const char* verb) {
    const Op* load = &program_.ops[tag.loader];
    if (!log_.is_new(Finding::kTensorMemory, &op, load)) return;
    report(
        Finding::kTensorMemory, &op, load,
        format("%s %s a register that %s loads, and tcgen05.wait::ld is missing between the two: "
               "the value may not have arrived yet. Fix: tcgen05.wait::ld before the register "
               "is used",
               describe(mark_of(warp, op)).c_str(), verb, describe_op(program_, *load).c_str()));
  };
  for (uint32_t number : watched.reads) {
    const RegisterTags::Tag& tag = tags.tags[number];
    if (tags.is_loading(tag)) return missing(tag, "reads");
  }
  if (watched.kind == WatchedOp::kTensorLoad) return;
  for (uint32_t number : watched.writes) {
    const RegisterTags::Tag& tag = tags.tags[number];
    if (tags.is_loading(tag) && !tag.copied) return missing(tag, "overwrites");
  }
}

void Checker::wait_tensor_loads(Warp& warp) { ++state(warp).registers.load_waits; }

// The registers of a wgmma are its own once a fence has come after other instructions wrote them,
// or read its accumulators; the first wgmma of a warp needs one in any case.
void Checker::check_multiply(Warp& warp, const Op& op, const WatchedOp& watched) {
  WarpState& own = state(warp);
  RegisterTags& tags = own.registers;
  auto missing = [&](const Op* writer) {
    if (!log_.is_new(Finding::kRegisterRace, &op, writer)) return;
    std::string what =
        writer == nullptr
            ? std::string("is the first wgmma of its warp and no wgmma.fence comes before it")
            : format("uses a register that %s has used since the last wgmma.fence",
                     describe_op(program_, *writer).c_str());
    report(Finding::kRegisterRace, &op, writer,
           format("%s %s. Fix: wgmma.fence between the two", describe(mark_of(warp, op)).c_str(),
                  what.c_str()));
  };
  if (tags.fences == 0) missing(nullptr);
  auto check = [&](const std::vector<uint32_t>& numbers) {
    for (uint32_t number : numbers) {
      const RegisterTags::Tag& tag = tags.tags[number];
      if (tags.fences == 0 || tag.touched != tags.fences + 1) continue;
      missing(&program_.ops[tag.writer]);
      return;
    }
  };
  check(watched.reads);
  check(watched.writes);
  for (uint32_t number : watched.writes) {
    const RegisterTags::Tag& tag = tags.tags[number];
    if (tags.fences == 0 || tag.read != tags.fences + 1) continue;
    missing(&program_.ops[tag.reader]);
    break;
  }
  for (uint32_t number : watched.writes) {
    tags.tags[number] = {own.wgmma_commits + 1, op_index(op), 0, 0, 0, 0, 0, 0, false};
  }
}

void Checker::fence_wgmma(Warp& warp) { ++state(warp).registers.fences; }

Access Checker::mark_of(const Warp& warp, const Op& op) const {
  Access mark;
  mark.cluster = id_;
  mark.op = op_index(op) & 0xffffff;
  mark.thread = thread_of(warp, 0);
  return mark;
}

}  // namespace warploom::emulator
