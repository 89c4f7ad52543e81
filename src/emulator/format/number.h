// A number apart from any format: what a conversion rounds from one format to another.
//
// Going through it makes every conversion of PTX round exactly once, in integer arithmetic, so that
// results depend neither on the host's instructions nor on its floating-point environment.

#ifndef WARPLOOM_EMULATOR_FORMAT_NUMBER_H_
#define WARPLOOM_EMULATOR_FORMAT_NUMBER_H_

#include <cstdint>

namespace warploom::emulator {

// Rounding modifiers (PTX ISA, "Rounding Modifiers"). Those that end in i round to an integer;
// kRna breaks ties away from zero and kRs is stochastic.
enum class Rounding : uint8_t { kNone, kRn, kRz, kRm, kRp, kRna, kRni, kRzi, kRmi, kRpi, kRs };

// Whether the modifier ends in i.
bool rounds_to_integer(Rounding rounding);

struct Number {
  enum class Kind : uint8_t { kFinite, kInfinite, kNan };

  Kind kind = Kind::kFinite;
  bool negative = false;
  uint64_t significand = 0;  // of a finite number, which is +-significand * 2^exponent
  int exponent = 0;

  bool is_zero() const { return kind == Kind::kFinite && significand == 0; }
};

// significand / 2^shift for shift >= 0, rounded to an integer. `negative` is the sign of the whole
// number, which kRm and kRp depend on; kNone truncates.
uint64_t round_shift(uint64_t significand, int shift, bool negative, Rounding rounding);

Number from_integer(uint64_t bits, int width, bool is_signed);

// The nearest integral number in the direction of `rounding`; keeps the sign of a zero.
Number round_to_integral(Number number, Rounding rounding);

// Two's complement bits of the number rounded to an integer and clamped to the range of the type;
// sign-extended to 64 bits if it is signed. Not for NaN.
uint64_t to_integer(const Number& number, Rounding rounding, int width, bool is_signed);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_FORMAT_NUMBER_H_
