// What follows the opcode of an instruction: ".global.u32".

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_MODIFIERS_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_MODIFIERS_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/ptx/module.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

// The modifiers of an instruction, each to be taken once. Those that are left over are unknown.
class Modifiers {
 public:
  explicit Modifiers(const ptx::Instruction& instruction);

  bool take(std::string_view name);
  // Position of the one that is there, -1 if none is.
  int take_one(std::initializer_list<std::string_view> names);
  // Those that change nothing here, such as scopes of memory ordering.
  void take_all(std::initializer_list<std::string_view> names);
  // The first modifier left that names a type; kNone if there is none.
  Type take_type();
  // The first modifier left, whatever it is; empty if there is none.
  std::string take_first();
  // A Fault if any is left.
  void finish() const;

 private:
  const ptx::Instruction& instruction_;
  std::vector<std::string> left_;
};

// The type that an instruction computes in: the last of its modifiers that names one.
Type last_type(const ptx::Instruction& instruction);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_MODIFIERS_H_
