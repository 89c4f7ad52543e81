#include "emulator/format/stochastic.h"

#include <algorithm>

namespace warploom::emulator {
namespace {

// A significand of f32 has 24 bits. Shifted further than this, fewer than one of 2^16 parts of the
// last place is left of it.
constexpr int kMostShift = 24 + kMostRandomBits;

int highest_bit(uint64_t value) { return 63 - __builtin_clzll(value); }

}  // namespace

uint64_t encode_stochastic(const FloatFormat& format, const Number& number, uint32_t random,
                           int bits, bool satfinite) {
  if (number.kind != Number::Kind::kFinite || number.significand == 0) {
    return encode(format, number, Rounding::kRn, satfinite);
  }
  const int exponent = number.exponent + highest_bit(number.significand) - format.mantissa_bits;
  const int unit = std::max(exponent, format.least_exponent());
  const int shift = unit - number.exponent;
  if (shift <= 0) return encode(format, number, Rounding::kRn, satfinite);
  Number rounded = number;
  rounded.exponent = unit;
  rounded.significand = 0;
  if (shift <= kMostShift) {
    const uint64_t lost = number.significand & ((uint64_t{1} << shift) - 1);
    const uint64_t sum = (lost << bits >> shift) + random;
    rounded.significand = (number.significand >> shift) + (sum >> bits);
  }
  return encode(format, rounded, Rounding::kRn, satfinite);
}

}  // namespace warploom::emulator
