// Which instructions wgmma has, as data; those of mma.sync are in mma_legality.h.

#ifndef WARPLOOM_EMULATOR_MATRIX_LEGALITY_H_
#define WARPLOOM_EMULATOR_MATRIX_LEGALITY_H_

#include "emulator/ptx/types.h"

namespace warploom::emulator {

// Operands of one family combine freely with each other and with its accumulators.
struct OperandFamily {
  Type operands[2];      // kNone where there is only one
  Type accumulators[2];  // likewise
  int k;  // twice as many if A is sparse
  int selectors;  // of a sparse A; 0: it has none
  bool transposes;  // MN-major operands
};

// The family of a product of a and b accumulated in d, or nullptr.
const OperandFamily* operand_family(Type a, Type b, Type d);

// Whether wgmma has this width for the family.
bool wgmma_has_width(const OperandFamily& family, int n);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_LEGALITY_H_
