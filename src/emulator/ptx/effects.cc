#include "emulator/ptx/effects.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "emulator/ptx/types.h"

namespace warploom::emulator {
namespace {

bool has_any(const ptx::Instruction& instruction, std::initializer_list<std::string_view> words) {
  return std::any_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                     [&](const std::string& modifier) {
                       return std::find(words.begin(), words.end(), modifier) != words.end();
                     });
}

// A generic address may be one of global memory.
bool may_be_global(const ptx::Instruction& instruction) {
  return !has_any(instruction, {"shared", "shared::cta", "shared::cluster", "local", "param",
                                "param::entry", "param::func", "const"});
}

// Accesses that order others, or that others may wait for.
bool is_strong(const ptx::Instruction& instruction) {
  return has_any(instruction, {"volatile", "relaxed", "acquire", "release", "mmio"});
}

bool adds_floats(const ptx::Instruction& instruction) {
  return has_any(instruction, {"add"}) &&
         std::any_of(instruction.modifiers.begin(), instruction.modifiers.end(),
                     [](const std::string& word) { return is_float(parse_type(word)); });
}

bool is_in(const std::string& opcode, std::initializer_list<std::string_view> opcodes) {
  return std::find(opcodes.begin(), opcodes.end(), opcode) != opcodes.end();
}

bool changes_state(const ptx::Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  if (opcode == "mbarrier")
    return !has_any(instruction, {"test_wait", "try_wait", "pending_count"});
  if (is_in(opcode, {"bar", "barrier"})) return !has_any(instruction, {"warp"});
  if (opcode == "wmma") return has_any(instruction, {"store"});
  if (is_in(opcode, {"atom", "red"})) return has_any(instruction, {"async"});
  return is_in(opcode, {"setmaxnreg", "st", "stmatrix", "cp", "multimem", "tensormap", "wgmma", "tcgen05",
                        "clusterlaunchcontrol", "call", "ret", "exit"});
}

}  // namespace

Effects effects_of(const ptx::Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  Effects effects;
  effects.changes_state = changes_state(instruction);
  if (is_in(opcode, {"ld", "ldu", "st"})) {
    effects.synchronises = is_strong(instruction) || has_any(instruction, {"async"});
    effects.couples_clusters = is_strong(instruction) && may_be_global(instruction);
  } else if (is_in(opcode, {"atom", "red", "multimem"})) {
    effects.synchronises = true;
    effects.couples_clusters = may_be_global(instruction);
    effects.sums_in_any_order = adds_floats(instruction);
  } else if (opcode == "cp") {
    effects.synchronises = true;
    // Sums may be rounded differently in another order.
    bool to_global = !has_any(instruction, {"mbarrier::complete_tx::bytes"});
    effects.couples_clusters = to_global && has_any(instruction, {"reduce"});
    // The type of a tensor's elements is known only when the instruction is executed.
    effects.sums_in_any_order = has_any(instruction, {"reduce"}) && has_any(instruction, {"add"}) &&
                                (adds_floats(instruction) || has_any(instruction, {"tensor"}));
  } else if (is_in(opcode, {"mbarrier", "bar", "barrier", "wgmma", "tcgen05", "setmaxnreg"})) {
    effects.synchronises = true;
  } else if (opcode == "clusterlaunchcontrol") {
    effects.synchronises = true;
    effects.couples_clusters = true;
  } else if (opcode == "call") {
    // The addresses that malloc gives depend on the order of the calls.
    effects.couples_clusters = is_in(instruction.operands[0].name, {"malloc", "free"});
  }
  return effects;
}

}  // namespace warploom::emulator
