// Elements of matrix operands, widened to the float that products are computed in.

#ifndef WARPLOOM_EMULATOR_MATRIX_ELEMENT_H_
#define WARPLOOM_EMULATOR_MATRIX_ELEMENT_H_

#include <cstdint>

#include "emulator/ptx/types.h"

namespace warploom::emulator {

// Bits of an operand element in memory, 0 if the type is none (tf32 occupies all of an f32).
int element_bits(Type type);

bool is_integer_element(Type type);

// `count` elements at `raw`, without loss; of 4 bits, the first is in the low half of a byte. Of
// tf32, the tensor core ignores the low 13 bits of the register.
void widen(Type type, const uint8_t* raw, int count, float* out);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_ELEMENT_H_
