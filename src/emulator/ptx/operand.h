// The operands of an instruction: registers, literals, names, vectors and addresses.

#ifndef WARPLOOM_EMULATOR_PTX_OPERAND_H_
#define WARPLOOM_EMULATOR_PTX_OPERAND_H_

#include <cstdint>

#include "emulator/ptx/cursor.h"
#include "emulator/ptx/module.h"
#include "emulator/ptx/scopes.h"

namespace warploom::emulator::ptx {

// Reads those of one function (PTX ISA, "Instruction Operands").
class OperandParser {
 public:
  // All three must outlive it. The function learns which alignment its dynamic memory needs.
  OperandParser(Cursor& cursor, const Scopes& scopes, Function& function)
      : cursor_(cursor), scopes_(scopes), function_(function) {}

  // Takes one operand; a Fault if there is none. Vectors and addresses nest at most in each other.
  Operand parse() { return operand(0); }

 private:
  Operand operand(int depth);
  int64_t offset();
  Operand address(int depth);
  Operand name();

  Cursor& cursor_;
  const Scopes& scopes_;
  Function& function_;
};

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_OPERAND_H_
