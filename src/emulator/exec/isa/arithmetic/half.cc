// Arithmetic in f16 and bf16, also packed in pairs (PTX ISA, "Half Precision Floating-Point").

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

// A double rounded to float such that a second rounding gives what one rounding would: inexact
// results get an odd last bit.
float round_to_odd(double value) {
  auto near = static_cast<float>(value);
  double error = value - static_cast<double>(near);
  if (error == 0 || std::isnan(error) || std::isinf(near)) return near;
  if (float_bits(near) & 1) return near;
  bool away = (error > 0) == (value > 0);
  return bits_float(float_bits(near) + (away ? 1u : ~0u));
}

struct F16 {
  // The sign of NaN counts for .xorsign.
  static double load(uint16_t bits) {
    return std::copysign(f16_to_f32(bits), bits & 0x8000 ? -1.0f : 1.0f);
  }
  static uint16_t store(double value) { return f32_to_f16(round_to_odd(value)); }
  static bool is_subnormal(uint16_t bits) { return (bits & 0x7c00) == 0; }
  static constexpr double kTiny = 0x1p-14 - 0x1p-26;  // what is less rounds to less than 2^-14
};

struct Bf16 {
  static double load(uint16_t bits) { return bf16_to_f32(bits); }
  static uint16_t store(double value) { return f32_to_bf16(round_to_odd(value)); }
  static bool is_subnormal(uint16_t bits) { return (bits & 0x7f80) == 0; }
  static constexpr double kTiny = 0x1p-126 - 0x1p-135;
};

struct Add {
  static double call(double a, double b) { return a + b; }
};
struct Subtract {
  static double call(double a, double b) { return a - b; }
};
struct Multiply {
  static double call(double a, double b) { return a * b; }
};
// The product is exact. A sum that is not gets an odd last bit, so that it can be rounded again.
struct Fma {
  static double call(double a, double b, double c) {
    double product = a * b, sum = product + c;
    double of_product = sum - c, of_c = sum - of_product;
    double error = (product - of_product) + (c - of_c);
    if (error == 0 || !std::isfinite(error)) return sum;
    uint64_t bits;
    std::memcpy(&bits, &sum, sizeof(bits));
    if (bits & 1) return sum;
    bits += (error > 0) == (sum > 0) ? 1 : ~uint64_t{0};
    std::memcpy(&sum, &bits, sizeof(sum));
    return sum;
  }
};
// A number wins over NaN; with .NaN the NaN does. With .xorsign.abs, magnitudes are compared, and
// the result has the product of the signs.
template <bool kNan, bool kMax, bool kMagnitude>
struct Extremum {
  static double call(double a, double b) {
    if constexpr (kMagnitude) {
      double result = Extremum<kNan, kMax, false>::call(std::fabs(a), std::fabs(b));
      bool negative = std::signbit(a) != std::signbit(b);
      return std::isnan(result) ? result : std::copysign(result, negative ? -1.0 : 1.0);
    }
    if (std::isnan(a)) return kNan ? a : b;
    if (std::isnan(b)) return kNan ? b : a;
    if (a == b) return std::signbit(a) == kMax ? b : a;
    return (a < b) == kMax ? b : a;
  }
};
struct Negate {
  static double call(double a) { return -a; }
};
struct Absolute {
  static double call(double a) { return std::fabs(a); }
};
struct Exp2 {
  static double call(double a) { return std::exp2(a); }
};
struct HyperbolicTangent {
  static double call(double a) { return std::tanh(a); }
};

enum class Clamp { kNone, kSaturate, kRectify };

template <Clamp kClamp>
double clamp(double x) {
  if constexpr (kClamp == Clamp::kSaturate) return x >= 1 ? 1 : x > 0 ? x : 0;
  if constexpr (kClamp == Clamp::kRectify) return std::isnan(x) || x > 0 ? x : 0;
  return x;
}

// F with what the modifiers do to its operands and its result.
template <class F, class Format, bool kFlush, Clamp kClamp>
struct Scalar {
  static double load(uint16_t bits) {
    return Format::load(kFlush && Format::is_subnormal(bits) ? bits & 0x8000 : bits);
  }

  template <class... A>
  static uint16_t call(A... a) {
    double exact = F::call(load(a)...);
    // Whether a result is subnormal is seen before it gets fewer bits for that.
    if (kFlush && std::fabs(exact) < Format::kTiny) exact = std::copysign(0.0, exact);
    return Format::store(clamp<kClamp>(exact));
  }
};

template <class S>
struct Packed {
  template <class... A>
  static uint32_t call(A... a) {
    uint32_t low = S::call(static_cast<uint16_t>(a)...);
    uint32_t high = S::call(static_cast<uint16_t>(a >> 16)...);
    return high << 16 | low;
  }
};

// The NaN of elements out of a tensor's bounds, of either sign: fma.oob makes it zero.
template <class S>
struct OutOfBounds {
  static bool is_outside(uint16_t bits) { return (bits & 0x7fff) == 0x7ff7; }

  template <class... A>
  static uint16_t call(A... a) {
    return (is_outside(a) || ...) ? uint16_t{0} : S::call(a...);
  }
};

struct Change {
  bool flush = false;
  bool out_of_bounds = false;
  Clamp clamp = Clamp::kNone;
};

template <class S, std::size_t... I>
Run run_of(bool packed, std::index_sequence<I...>) {
  // One integer for each source; the comma operator only repeats it.
  if (packed) return apply<Packed<S>, uint32_t, decltype((void)I, uint32_t{})...>;
  return apply<S, uint16_t, decltype((void)I, uint16_t{})...>;
}

template <class F, class Format, bool kFlush, Clamp kClamp, class Sources>
Run with_bounds(bool packed, bool out_of_bounds, Sources sources) {
  using S = Scalar<F, Format, kFlush, kClamp>;
  return out_of_bounds ? run_of<OutOfBounds<S>>(packed, sources) : run_of<S>(packed, sources);
}

template <class F, class Format, bool kFlush, class Sources>
Run with_clamp(bool packed, const Change& change, Sources sources) {
  bool outside = change.out_of_bounds;
  switch (change.clamp) {
    case Clamp::kSaturate:
      return with_bounds<F, Format, kFlush, Clamp::kSaturate>(packed, outside, sources);
    case Clamp::kRectify:
      return with_bounds<F, Format, kFlush, Clamp::kRectify>(packed, outside, sources);
    default:
      return with_bounds<F, Format, kFlush, Clamp::kNone>(packed, outside, sources);
  }
}

template <class F, class Sources>
Run select(Type type, const Change& change, Sources sources) {
  bool packed = type == Type::kF16x2 || type == Type::kBf16x2;
  if (type == Type::kF16 || type == Type::kF16x2) {
    return change.flush ? with_clamp<F, F16, true>(packed, change, sources)
                        : with_clamp<F, F16, false>(packed, change, sources);
  }
  // PTX has .ftz for bf16 with ex2 only, where it is what happens anyway.
  if (type == Type::kBf16 || type == Type::kBf16x2) {
    return with_clamp<F, Bf16, false>(packed, change, sources);
  }
  return nullptr;
}

template <class F, std::size_t kSources>
void decode_half(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take_all({"rn", "approx"});
  Change change;
  change.flush = modifiers.take("ftz");
  if (kSources == 3) change.out_of_bounds = modifiers.take("oob");
  int clamp = modifiers.take_one({"sat", "relu"});
  if (clamp >= 0) change.clamp = clamp == 0 ? Clamp::kSaturate : Clamp::kRectify;
  Type type = modifiers.take_type();
  decoder.op.run = select<F>(type, change, std::make_index_sequence<kSources>{});
  if (decoder.op.run == nullptr) decoder.fail("its type is not supported");
  decode_uniform(decoder, type, kSources);
}

template <bool kMax, bool kNan>
void decode_extremum_of(Decoder& decoder) {
  if (decoder.modifiers.take("xorsign")) {
    if (!decoder.modifiers.take("abs")) decoder.fail(".xorsign needs .abs");
    decode_half<Extremum<kNan, kMax, true>, 2>(decoder);
  } else {
    decode_half<Extremum<kNan, kMax, false>, 2>(decoder);
  }
}

template <bool kMax>
void decode_extremum(Decoder& decoder) {
  if (decoder.modifiers.take("NaN")) {
    decode_extremum_of<kMax, true>(decoder);
  } else {
    decode_extremum_of<kMax, false>(decoder);
  }
}

}  // namespace

void add_half_ops(DecodeTable& table) {
  table["add:h"] = decode_half<Add, 2>;
  table["sub:h"] = decode_half<Subtract, 2>;
  table["mul:h"] = decode_half<Multiply, 2>;
  table["fma:h"] = decode_half<Fma, 3>;
  table["min:h"] = decode_extremum<false>;
  table["max:h"] = decode_extremum<true>;
  table["neg:h"] = decode_half<Negate, 1>;
  table["abs:h"] = decode_half<Absolute, 1>;
  table["ex2:h"] = decode_half<Exp2, 1>;
  table["tanh:h"] = decode_half<HyperbolicTangent, 1>;
}

}  // namespace warploom::emulator
