#include "emulator/format/number.h"

namespace warploom::emulator {
namespace {

// The mode that decides ties and directions, without the "to an integer".
Rounding direction(Rounding rounding) {
  switch (rounding) {
    case Rounding::kRni:
      return Rounding::kRn;
    case Rounding::kRzi:
      return Rounding::kRz;
    case Rounding::kRmi:
      return Rounding::kRm;
    case Rounding::kRpi:
      return Rounding::kRp;
    default:
      return rounding;
  }
}

constexpr uint64_t low_bits(int count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

}  // namespace

bool rounds_to_integer(Rounding rounding) { return direction(rounding) != rounding; }

uint64_t round_shift(uint64_t significand, int shift, bool negative, Rounding rounding) {
  if (shift <= 0) return significand;
  const uint64_t kept = shift >= 64 ? 0 : significand >> shift;
  const uint64_t dropped = significand & low_bits(shift);
  if (dropped == 0) return kept;
  // Below 65 bits, what is dropped is compared with half a unit; above, it is always less.
  const uint64_t half = shift > 64 ? 0 : uint64_t{1} << (shift - 1);
  const bool above = half != 0 && dropped > half;
  const bool tie = half != 0 && dropped == half;
  bool up = false;
  switch (direction(rounding)) {
    case Rounding::kRn:
      up = above || (tie && (kept & 1) != 0);
      break;
    case Rounding::kRna:
      up = above || tie;
      break;
    case Rounding::kRm:
      up = negative;
      break;
    case Rounding::kRp:
      up = !negative;
      break;
    default:
      break;
  }
  return kept + (up ? 1 : 0);
}

Number from_integer(uint64_t bits, int width, bool is_signed) {
  bits &= low_bits(width);
  Number number;
  number.negative = is_signed && (bits >> (width - 1) & 1) != 0;
  number.significand = number.negative ? (~bits + 1) & low_bits(width) : bits;
  return number;
}

Number round_to_integral(Number number, Rounding rounding) {
  if (number.kind != Number::Kind::kFinite || number.exponent >= 0) return number;
  number.significand =
      round_shift(number.significand, -number.exponent, number.negative, rounding);
  number.exponent = 0;
  return number;
}

uint64_t to_integer(const Number& number, Rounding rounding, int width, bool is_signed) {
  const Number integral = round_to_integral(number, rounding);
  const bool negative = integral.negative && !integral.is_zero();
  const uint64_t limit = !is_signed ? (negative ? 0 : low_bits(width))
                                    : low_bits(width - 1) + (negative ? 1 : 0);
  uint64_t magnitude = limit;
  if (integral.kind == Number::Kind::kFinite) {
    const int exponent = integral.exponent;
    const bool fits = integral.significand == 0 ||
                      (exponent < 64 && integral.significand <= low_bits(64 - exponent));
    if (fits) magnitude = integral.significand << (integral.significand == 0 ? 0 : exponent);
    if (magnitude > limit) magnitude = limit;
  }
  return negative ? ~magnitude + 1 : magnitude;
}

}  // namespace warploom::emulator
