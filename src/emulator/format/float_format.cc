#include "emulator/format/float_format.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace warploom::emulator {
namespace {

// Columns: type, exponent and mantissa bits, bias, largest finite number, infinity, NaN, low zeros.
constexpr std::array kFormats = {
    FloatFormat{Type::kF64, 11, 52, 1023, 0x7fefffffffffffff, 0x7ff0000000000000,
                0x7fffffffffffffff, 0},
    FloatFormat{Type::kF32, 8, 23, 127, 0x7f7fffff, 0x7f800000, 0x7fffffff, 0},
    FloatFormat{Type::kTf32, 8, 10, 127, 0x3fbff, 0x3fc00, 0x3ffff, 13},
    FloatFormat{Type::kF16, 5, 10, 15, 0x7bff, 0x7c00, 0x7fff, 0},
    FloatFormat{Type::kBf16, 8, 7, 127, 0x7f7f, 0x7f80, 0x7fff, 0},
    FloatFormat{Type::kE4m3, 4, 3, 7, 0x7e, 0, 0x7f, 0},
    FloatFormat{Type::kE5m2, 5, 2, 15, 0x7b, 0x7c, 0x7f, 0},
    FloatFormat{Type::kE2m1, 2, 1, 1, 0x7, 0, 0, 0},
    FloatFormat{Type::kE2m3, 2, 3, 1, 0x1f, 0, 0, 0},
    FloatFormat{Type::kE3m2, 3, 2, 3, 0x1f, 0, 0, 0},
};

constexpr bool consistent(const FloatFormat& format) {
  const uint64_t largest = (uint64_t{1} << (format.width() - 1)) - 1;
  if (format.bias != (1 << (format.exponent_bits - 1)) - 1) return false;
  if (format.infinity != 0) {
    return format.infinity == format.max_finite + 1 && format.nan == largest &&
           (format.infinity & ((uint64_t{1} << format.mantissa_bits) - 1)) == 0;
  }
  return format.nan == 0 ? format.max_finite == largest
                         : format.nan == largest && format.max_finite == largest - 1;
}

constexpr bool all_consistent() {
  for (const FloatFormat& format : kFormats) {
    if (!consistent(format)) return false;
  }
  return true;
}
static_assert(all_consistent());

constexpr auto by_type() {
  std::array<const FloatFormat*, static_cast<size_t>(Type::kB1) + 1> result{};
  for (const FloatFormat& format : kFormats) result[static_cast<size_t>(format.type)] = &format;
  return result;
}
constexpr auto kByType = by_type();

int highest_bit(uint64_t value) { return 63 - __builtin_clzll(value); }

// What a magnitude beyond the largest finite number becomes.
uint64_t overflow(const FloatFormat& format, bool negative, Rounding rounding, bool satfinite) {
  const bool towards_zero = rounding == Rounding::kRz || rounding == Rounding::kNone ||
                            rounding == (negative ? Rounding::kRp : Rounding::kRm);
  return satfinite || towards_zero || format.infinity == 0 ? format.max_finite : format.infinity;
}

// Bits without the sign, which is not part of a NaN that is written.
uint64_t magnitude(const FloatFormat& format, const Number& number, Rounding rounding,
                   bool satfinite) {
  if (number.kind == Number::Kind::kInfinite) {
    return satfinite || format.infinity == 0 ? format.max_finite : format.infinity;
  }
  if (number.significand == 0) return 0;
  const int exponent = number.exponent + highest_bit(number.significand) - format.mantissa_bits;
  const int unit = std::max(exponent, format.least_exponent());
  const int shift = unit - number.exponent;
  const uint64_t mantissa = shift < 0 ? number.significand << -shift
                                      : round_shift(number.significand, shift, number.negative,
                                                    rounding);
  // The implicit one of a normal number is what carries 1 into the exponent field. The comparison
  // comes first because the exponent of a much wider format may not fit into the bits.
  const int field = unit - format.least_exponent();
  if (field >> format.exponent_bits != 0) {
    return overflow(format, number.negative, rounding, satfinite);
  }
  const uint64_t bits = (static_cast<uint64_t>(field) << format.mantissa_bits) + mantissa;
  return bits > format.max_finite ? overflow(format, number.negative, rounding, satfinite) : bits;
}

}  // namespace

const FloatFormat* float_format(Type type) { return kByType[static_cast<size_t>(type)]; }

Number decode(const FloatFormat& format, uint64_t bits) {
  bits >>= format.low_zeros;
  const uint64_t value = bits & ((uint64_t{1} << (format.width() - 1)) - 1);
  Number number;
  number.negative = (bits >> (format.width() - 1) & 1) != 0;
  if (value > format.max_finite) {
    number.kind = value == format.infinity ? Number::Kind::kInfinite : Number::Kind::kNan;
    return number;
  }
  const int field = static_cast<int>(value >> format.mantissa_bits);
  const uint64_t mantissa = value & ((uint64_t{1} << format.mantissa_bits) - 1);
  number.significand = field == 0 ? mantissa : mantissa | uint64_t{1} << format.mantissa_bits;
  number.exponent = format.least_exponent() + std::max(field - 1, 0);
  return number;
}

uint64_t encode(const FloatFormat& format, const Number& number, Rounding rounding,
                bool satfinite) {
  if (number.kind == Number::Kind::kNan) {
    if (format.nan == 0) return format.max_finite;
    const uint64_t below = (uint64_t{1} << format.low_zeros) - 1;
    return format.nan << format.low_zeros | below;
  }
  const uint64_t sign = static_cast<uint64_t>(number.negative) << (format.width() - 1);
  return (sign | magnitude(format, number, rounding, satfinite)) << format.low_zeros;
}

}  // namespace warploom::emulator
