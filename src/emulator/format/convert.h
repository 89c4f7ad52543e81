// The cvt instruction (PTX ISA, "Data Movement and Conversion Instructions: cvt").

#ifndef WARPLOOM_EMULATOR_FORMAT_CONVERT_H_
#define WARPLOOM_EMULATOR_FORMAT_CONVERT_H_

#include <cstdint>

#include "emulator/format/number.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

// The instruction's types and modifiers. A packed type (f16x2, e4m3x2) is converted by element.
struct CvtForm {
  Type to;
  Type from;
  Rounding rounding;
  bool ftz;        // flush subnormal f32 inputs and results to zeros of the same sign
  bool sat;        // clamp to [0, 1], or to the range of an integer type
  bool satfinite;  // finite results only
  bool relu;       // negative results become +0
};

// A Fault that names the rule if PTX has no such conversion. Call it once, when loading.
void check_cvt(const CvtForm& form);

// One operand; packed from packed as well. `bits` above the width of the source type are ignored.
// The result is sign-extended to 64 bits if it is a signed integer, else zero-extended.
uint64_t cvt(const CvtForm& form, uint64_t bits);

// Two scalar operands into one packed result, such as cvt.rn.f16x2.f32 d, hi, lo.
uint64_t cvt_pack2(const CvtForm& form, uint64_t hi, uint64_t lo);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_FORMAT_CONVERT_H_
