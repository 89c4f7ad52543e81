// The binary floating-point formats of PTX as data, and the two functions that read and write them.

#ifndef WARPLOOM_EMULATOR_FORMAT_FLOAT_FORMAT_H_
#define WARPLOOM_EMULATOR_FORMAT_FLOAT_FORMAT_H_

#include <cstdint>

#include "emulator/format/number.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

// One row of PTX ISA, "Fundamental Types" and "Alternate Floating-Point Data Formats". Bit patterns
// are those of a positive number. A format with no infinity or no NaN has 0 there.
struct FloatFormat {
  Type type;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  uint64_t max_finite;
  uint64_t infinity;
  uint64_t nan;   // what an operation writes; PTX does not preserve payloads
  int low_zeros;  // bits below the mantissa in a register: tf32 sits in the layout of f32

  constexpr int width() const { return 1 + exponent_bits + mantissa_bits; }
  // Exponent of the last mantissa bit of a subnormal number.
  constexpr int least_exponent() const { return 1 - bias - mantissa_bits; }
};

// The format of a scalar type, or nullptr if the type is no floating-point type.
const FloatFormat* float_format(Type type);

Number decode(const FloatFormat& format, uint64_t bits);

// Rounds to the format. What is too large becomes infinite or, depending on the rounding, the
// largest finite number; always the latter with `satfinite`, for infinities too. NaN becomes the
// format's NaN, or its largest number where it has none.
uint64_t encode(const FloatFormat& format, const Number& number, Rounding rounding, bool satfinite);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_FORMAT_FLOAT_FORMAT_H_
