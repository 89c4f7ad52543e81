// How the tensor core of an H200 forms a sum, as its recorded results show (tests/emulator/golden).
//
// With the largest exponent e of all terms that are not zero, products and accumulator alike, every
// term is truncated to a multiple of 2^(e - kept), and their exact sum is truncated to
// `significant` bits. The exponent of a product is the sum of those of its factors; a subnormal
// number has the least exponent of its type.

#ifndef WARPLOOM_EMULATOR_MATRIX_SUM_RULE_H_
#define WARPLOOM_EMULATOR_MATRIX_SUM_RULE_H_

#include "emulator/ptx/types.h"

namespace warploom::emulator {

struct SumRule {
  int kept = 0;         // 0: no rule; terms are added one after the other, in float
  int significant = 0;
  bool sticky = false;  // the last bit is set if others were lost: a second rounding follows
  int least_a = 0;      // least exponents of the operands
  int least_b = 0;
};

// Of wgmma with these types of operands and accumulator. Integers have no rule.
SumRule wgmma_sum_rule(Type a, Type b, Type d);

// Of mma.sync, which converts operands of 8 bits to f16.
SumRule mma_sum_rule(Type a, Type b, Type d);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_SUM_RULE_H_
