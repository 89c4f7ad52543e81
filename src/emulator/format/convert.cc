#include "emulator/format/convert.h"

#include <string>

#include "emulator/base/fault.h"
#include "emulator/format/float16.h"
#include "emulator/format/float_format.h"

namespace warploom::emulator {
namespace {

constexpr uint64_t mask(int bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

// The type of one element of a packed type, else the type itself.
Type element(Type type) {
  switch (type) {
    case Type::kF16x2:
      return Type::kF16;
    case Type::kBf16x2:
      return Type::kBf16;
    case Type::kE4m3x2:
      return Type::kE4m3;
    case Type::kE5m2x2:
      return Type::kE5m2;
    case Type::kE2m1x2:
      return Type::kE2m1;
    case Type::kE2m3x2:
      return Type::kE2m3;
    case Type::kE3m2x2:
      return Type::kE3m2;
    default:
      return type;
  }
}

bool is_packed(Type type) { return element(type) != type; }

bool is_integer(Type type) { return type >= Type::kU8 && type <= Type::kS64; }

// 8 bits and fewer: these formats exist only packed, and cvt to them always saturates.
bool is_narrow(const FloatFormat& format) { return format.width() <= 8; }

bool holds(const FloatFormat& wide, const FloatFormat& narrow) {
  return wide.mantissa_bits >= narrow.mantissa_bits && wide.exponent_bits >= narrow.exponent_bits;
}

const char* integer_problem(const CvtForm& form) {
  if (form.ftz && form.from != Type::kF32 && form.to != Type::kF32) return ".ftz needs an f32";
  if (form.satfinite || form.relu) return ".satfinite and .relu are for floating-point results";
  const bool from_integer = is_integer(form.from);
  if (from_integer && is_integer(form.to)) {
    return form.rounding == Rounding::kNone ? nullptr : "integers do not round";
  }
  if (from_integer) {
    return form.rounding >= Rounding::kRn && form.rounding <= Rounding::kRp
               ? nullptr
               : "an integer to float conversion takes .rn, .rz, .rm or .rp";
  }
  return rounds_to_integer(form.rounding)
             ? nullptr
             : "a float to integer conversion takes .rni, .rzi, .rmi or .rpi";
}

const char* float_problem(const CvtForm& form, const FloatFormat& to, const FloatFormat& from) {
  const Rounding rounding = form.rounding;
  if (rounding == Rounding::kRs) return "stochastic rounding is not supported";
  if (form.ftz && from.type != Type::kF32 && to.type != Type::kF32) return ".ftz needs an f32";
  if (form.sat && (form.satfinite || form.relu)) return ".sat excludes .satfinite and .relu";
  if (is_narrow(to)) {
    if (!form.satfinite) return "a result of 8 bits or fewer takes .satfinite";
    if (rounding != Rounding::kRn) return "a result of 8 bits or fewer takes .rn";
    return nullptr;
  }
  if (rounding == Rounding::kRna && to.type != Type::kTf32) return ".rna is for tf32";
  if (rounds_to_integer(rounding) && &to != &from) {
    return "rounding to an integer takes the same type on both sides";
  }
  if (rounding == Rounding::kNone && !holds(to, from)) return "a narrowing conversion must round";
  return nullptr;
}

const char* problem(const CvtForm& form) {
  const Type to = element(form.to), from = element(form.from);
  const FloatFormat* to_float = float_format(to);
  const FloatFormat* from_float = float_format(from);
  if ((to_float == nullptr && !is_integer(to)) || (from_float == nullptr && !is_integer(from))) {
    return "the types are not supported";
  }
  if (is_packed(form.from) && !is_packed(form.to)) return "a packed source has a packed result";
  if (is_packed(form.to) && from_float == nullptr) return "a packed result has a float source";
  if ((to_float != nullptr && is_narrow(*to_float) && !is_packed(form.to)) ||
      (from_float != nullptr && is_narrow(*from_float) && !is_packed(form.from))) {
    return "types of 8 bits and fewer are converted in pairs";
  }
  if (to_float == nullptr || from_float == nullptr) return integer_problem(form);
  return float_problem(form, *to_float, *from_float);
}

Number clamp(const CvtForm& form, Number number) {
  if (form.sat) {
    const Number one{Number::Kind::kFinite, false, 1, 0};
    if (number.kind == Number::Kind::kNan || number.negative) return Number{};
    if (number.kind == Number::Kind::kInfinite) return one;
    // Greater than one if an integer bit is left beside those of a fraction that is not zero.
    const uint64_t ceiling =
        number.exponent >= 0 ? number.significand
                             : round_shift(number.significand, -number.exponent, false,
                                           Rounding::kRp);
    if (ceiling > 1 || (number.exponent > 0 && number.significand != 0)) return one;
  }
  if (form.relu && number.kind != Number::Kind::kNan && number.negative) return Number{};
  return number;
}

uint64_t integer_from_float(const CvtForm& form, Type to, Type from, const Number& number) {
  const int width = type_bits(to);
  if (number.kind != Number::Kind::kNan) {
    return to_integer(number, form.rounding, width, is_signed(to));
  }
  // PTX: zero, but the value with only the top bit set where 64-bit hardware is at work.
  if (from != Type::kF64 && width != 64) return 0;
  const uint64_t top = uint64_t{1} << (width - 1);
  return is_signed(to) ? ~top + 1 : top;
}

// What becomes of NaN: f64 on either side keeps sign and payload and makes it quiet, bf16 to f32
// moves the bits; everything else gives the canonical NaN.
uint64_t nan_from_nan(const FloatFormat& to, const FloatFormat& from, uint64_t bits) {
  const bool moves = from.type == Type::kBf16 && to.type == Type::kF32;
  const bool keeps = to.type == Type::kF64 || (from.type == Type::kF64 && to.exponent_bits == 8 &&
                                               to.type != Type::kTf32);
  if (!moves && !keeps) return encode(to, decode(from, bits), Rounding::kRn, false);
  const uint64_t sign = bits >> (from.width() - 1) & 1;
  const uint64_t mantissa = bits & mask(from.mantissa_bits);
  const int shift = to.mantissa_bits - from.mantissa_bits;
  const uint64_t quiet = moves ? 0 : uint64_t{1} << (to.mantissa_bits - 1);
  return sign << (to.width() - 1) | to.infinity | quiet |
         (shift < 0 ? mantissa >> -shift : mantissa << shift);
}

uint64_t float_from_number(const CvtForm& form, const FloatFormat& to, Number number) {
  if (rounds_to_integer(form.rounding)) number = round_to_integral(number, form.rounding);
  const uint64_t result = encode(to, clamp(form, number), form.rounding, form.satfinite);
  const bool subnormal = (result & 0x7f800000u) == 0;
  return form.ftz && to.type == Type::kF32 && subnormal ? result & 0x80000000u : result;
}

uint64_t convert(const CvtForm& form, Type to, Type from, uint64_t bits) {
  const FloatFormat* to_float = float_format(to);
  const FloatFormat* from_float = float_format(from);
  if (from_float != nullptr) {
    if (form.ftz && from == Type::kF32 && (bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    const Number number = decode(*from_float, bits);
    if (to_float != nullptr && number.kind == Number::Kind::kNan && !form.sat) {
      return nan_from_nan(*to_float, *from_float, bits);
    }
    if (to_float != nullptr) return float_from_number(form, *to_float, number);
    return integer_from_float(form, to, from, number);
  }
  const Number number = from_integer(bits, type_bits(from), is_signed(from));
  if (to_float != nullptr) return float_from_number(form, *to_float, number);
  const int width = type_bits(to);
  if (form.sat) return to_integer(number, Rounding::kRz, width, is_signed(to));
  const uint64_t value = number.negative ? ~number.significand + 1 : number.significand;
  const uint64_t kept = value & mask(width);
  const bool extend = is_signed(to) && (kept >> (width - 1) & 1) != 0;
  return extend ? kept | ~mask(width) : kept;
}

// The conversions of nearly every epilogue, past the general machinery.
bool is_plain(const CvtForm& form, Rounding rounding) {
  return form.rounding == rounding && !form.ftz && !form.sat && !form.satfinite && !form.relu;
}

uint64_t convert_element(const CvtForm& form, Type to, Type from, uint64_t bits) {
  if (from == Type::kF32 && is_plain(form, Rounding::kRn)) {
    const float value = bits_float(static_cast<uint32_t>(bits));
    if (to == Type::kF16) return f32_to_f16(value);
    if (to == Type::kBf16) return f32_to_bf16(value);
  }
  if (to == Type::kF32 && is_plain(form, Rounding::kNone)) {
    if (from == Type::kF16) return float_bits(f16_to_f32(static_cast<uint16_t>(bits)));
    if (from == Type::kBf16) return float_bits(bf16_to_f32(static_cast<uint16_t>(bits)));
  }
  return convert(form, to, from, bits);
}

}  // namespace

void check_cvt(const CvtForm& form) {
  const char* reason = problem(form);
  if (reason == nullptr) return;
  fault("cvt from %s to %s does not exist in this form: %s",
        std::string(type_name(form.from)).c_str(), std::string(type_name(form.to)).c_str(),
        reason);
}

uint64_t cvt(const CvtForm& form, uint64_t bits) {
  const Type to = element(form.to), from = element(form.from);
  if (!is_packed(form.to)) return convert_element(form, to, from, bits);
  const int source = type_bits(form.from) / 2, result = type_bits(form.to) / 2;
  const uint64_t lo = convert_element(form, to, from, bits & mask(source));
  const uint64_t hi = convert_element(form, to, from, bits >> source & mask(source));
  return hi << result | lo;
}

uint64_t cvt_pack2(const CvtForm& form, uint64_t hi, uint64_t lo) {
  const Type to = element(form.to);
  return convert_element(form, to, form.from, hi) << (type_bits(form.to) / 2) |
         convert_element(form, to, form.from, lo);
}

}  // namespace warploom::emulator
