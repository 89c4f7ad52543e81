// Arithmetic in f32 and f64 (PTX ISA, "Floating-Point Instructions").
//
// Rounding is to nearest. Approximate instructions are computed with the exact function: they are
// closer to it than the hardware's results, which have an error bound but no definition.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/rounding.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

// An f32 that is not a number is the same one whatever the operands were; f64 keeps payloads.
inline float canonical(float x) { return std::isnan(x) ? bits_float(0x7fffffffu) : x; }
inline double canonical(double x) { return x; }

// Functions that change bits and do not look at numbers: NaN keeps its payload.
struct MovesBits {};

template <class T>
T saturate(T x) {
  return x >= T{1} ? T{1} : x > T{0} ? x : T{0};  // NaN becomes +0
}

struct Add {
  template <class T>
  static T call(T a, T b) { return a + b; }
};

struct Subtract {
  template <class T>
  static T call(T a, T b) { return a - b; }
};

struct Multiply {
  template <class T>
  static T call(T a, T b) { return a * b; }
};

struct Fma {
  template <class T>
  static T call(T a, T b, T c) { return std::fma(a, b, c); }
};

struct Divide {
  template <class T>
  static T call(T a, T b) { return a / b; }
};

// A number wins over NaN; with .NaN the NaN does.
// With .xorsign.abs, magnitudes are compared, and the result has the product of the signs.
template <bool kNan, bool kMax, bool kMagnitude = false>
struct Extremum {
  template <class T>
  static T call(T a, T b) {
    if constexpr (kMagnitude) {
      T result = Extremum<kNan, kMax>::call(std::fabs(a), std::fabs(b));
      T sign = std::signbit(a) != std::signbit(b) ? T{-1} : T{1};
      return std::isnan(result) ? result : std::copysign(result, sign);
    }
    if (std::isnan(a)) return kNan ? a + b : std::isnan(b) ? b + b : b;
    if (std::isnan(b)) return kNan ? a + b : a;
    if (a == b) return std::signbit(a) == kMax ? b : a;  // -0 < +0
    return (a < b) == kMax ? b : a;
  }
};

// Of three numbers, or of their magnitudes.
template <bool kNan, bool kMax, bool kMagnitude>
struct ExtremumOfThree {
  template <class T>
  static T call(T a, T b, T c) {
    using Pair = Extremum<kNan, kMax>;
    if constexpr (kMagnitude) {
      return Pair::call(Pair::call(std::fabs(a), std::fabs(b)), std::fabs(c));
    }
    return Pair::call(Pair::call(a, b), c);
  }
};

// In f64 these are additions: NaN becomes quiet and keeps its sign.
struct Negate : MovesBits {
  static float call(float a) { return -a; }
  static double call(double a) { return std::isnan(a) ? a + a : -a; }
};

struct Absolute : MovesBits {
  static float call(float a) { return std::fabs(a); }
  static double call(double a) { return std::isnan(a) ? a + a : std::fabs(a); }
};

struct CopySign : MovesBits {
  template <class T>
  static T call(T a, T b) { return std::copysign(b, a); }
};

struct Reciprocal {
  template <class T>
  static T call(T a) { return T{1} / a; }
};

struct SquareRoot {
  template <class T>
  static T call(T a) { return std::sqrt(a); }
};

struct ReciprocalSquareRoot {
  template <class T>
  static T call(T a) { return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a))); }
};

struct Exp2 {
  template <class T>
  static T call(T a) { return std::exp2(a); }
};

struct Log2 {
  template <class T>
  static T call(T a) { return std::log2(a); }
};

// Sine and cosine are functions of turns: the argument is multiplied by 1 / (2 pi) in f32, rounded
// toward zero, so that large arguments give what they give on the hardware.
inline double turns(float a) {
  constexpr double kPerTurn = 0.15915494f;
  double exact = a * kPerTurn;
  auto near = static_cast<float>(exact);
  if (std::fabs(static_cast<double>(near)) > std::fabs(exact)) near = std::nextafter(near, 0.0f);
  return std::fmod(static_cast<double>(near), 1.0);
}

constexpr double kTwoPi = 6.283185307179586;

struct Sine {
  static float call(float a) { return static_cast<float>(std::sin(kTwoPi * turns(a))); }
  static double call(double a) { return std::sin(a); }
};

struct Cosine {
  static float call(float a) { return static_cast<float>(std::cos(kTwoPi * turns(a))); }
  static double call(double a) { return std::cos(a); }
};

struct HyperbolicTangent {
  template <class T>
  static T call(T a) { return std::tanh(a); }
};

// F with flushed inputs and results, and saturation.
template <class F, bool kFlush, bool kSaturate>
struct Modified {
  template <class T, class... Rest>
  static T call(T a, Rest... rest) {
    T result;
    if constexpr (kFlush) {
      result = flush(F::call(flush(a), flush(rest)...));
    } else {
      result = F::call(a, rest...);
    }
    if constexpr (!std::is_base_of_v<MovesBits, F>) result = canonical(result);
    return kSaturate ? saturate(result) : result;
  }
};

template <class F, class T, std::size_t... I>
Run select(bool flush_inputs, bool saturated, int rounding, std::index_sequence<I...>) {
  // One T for each source; the comma operator only repeats it.
#define WARPLOOM_RUN(ftz, sat) apply<Modified<F, ftz, sat>, T, decltype((void)I, T{})...>
  if (flush_inputs) {
    return saturated ? with_rounding<WARPLOOM_RUN(true, true)>(rounding)
                     : with_rounding<WARPLOOM_RUN(true, false)>(rounding);
  }
  return saturated ? with_rounding<WARPLOOM_RUN(false, true)>(rounding)
                   : with_rounding<WARPLOOM_RUN(false, false)>(rounding);
#undef WARPLOOM_RUN
}

template <class F, std::size_t kSources>
void decode_float(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  bool ftz = modifiers.take("ftz");
  bool sat = modifiers.take("sat");
  int rounding = modifiers.take_one({"rn", "rz", "rm", "rp"});
  modifiers.take_all({"approx", "full"});
  Type type = modifiers.take_type();
  if (type != Type::kF32 && type != Type::kF64) decoder.fail("it needs .f32 or .f64");
  decode_uniform(decoder, type, kSources);
  auto sources = std::make_index_sequence<kSources>{};
  decoder.op.run = type == Type::kF32 ? select<F, float>(ftz, sat, rounding, sources)
                                      : select<F, double>(ftz, sat, rounding, sources);
}

template <bool kMax, bool kNan>
void decode_extremum_of_three(Decoder& decoder) {
  if (last_type(decoder.instruction()) != Type::kF32) decoder.fail("only .f32 has three sources");
  if (decoder.modifiers.take("abs")) {
    decode_float<ExtremumOfThree<kNan, kMax, true>, 3>(decoder);
  } else {
    decode_float<ExtremumOfThree<kNan, kMax, false>, 3>(decoder);
  }
}

template <bool kMax, bool kNan>
void decode_extremum_of(Decoder& decoder) {
  if (decoder.count() == 4) {
    decode_extremum_of_three<kMax, kNan>(decoder);
  } else if (decoder.modifiers.take("xorsign")) {
    if (!decoder.modifiers.take("abs")) decoder.fail(".xorsign needs .abs");
    decode_float<Extremum<kNan, kMax, true>, 2>(decoder);
  } else {
    decode_float<Extremum<kNan, kMax>, 2>(decoder);
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

using Classes = uint32_t;  // set of the properties that a number has, by bit

enum Property : int { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

template <class T>
Classes classify(T x) {
  Classes result = std::isnan(x) ? 1u << kNotANumber : 1u << kNumber;
  if (std::isfinite(x)) result |= 1u << kFinite;
  if (std::isinf(x)) result |= 1u << kInfinite;
  if (std::isnormal(x)) result |= 1u << kNormal;
  if (std::fpclassify(x) == FP_SUBNORMAL) result |= 1u << kSubnormal;
  return result;
}

template <class T>
Step test_property(Warp& warp, const Op& op, uint32_t active) {
  uint32_t set = 0;
  const Storage<T>* a = warp.lanes<Storage<T>>(op.s[0]);
  for_each_lane(active, [&](int lane) {
    if (classify(unpack<T>(a[lane])) >> op.flag & 1) set |= 1u << lane;
  });
  warp.set_predicate(op.d, set, active);
  return Step::kNext;
}

void decode_testp(Decoder& decoder) {
  int index = decoder.modifiers.take_one(
      {"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  Type type = decoder.modifiers.take_type();
  if (index < 0) decoder.fail("it needs a property");
  decoder.expect_count(2, 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 1);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.flag = static_cast<uint8_t>(index);
  decoder.op.run = type == Type::kF32 ? test_property<float> : test_property<double>;
}

}  // namespace

void add_float_ops(DecodeTable& table) {
  table["add:f"] = decode_float<Add, 2>;
  table["sub:f"] = decode_float<Subtract, 2>;
  table["mul:f"] = decode_float<Multiply, 2>;
  table["fma:f"] = decode_float<Fma, 3>;
  table["mad:f"] = decode_float<Fma, 3>;
  table["div:f"] = decode_float<Divide, 2>;
  table["min:f"] = decode_extremum<false>;
  table["max:f"] = decode_extremum<true>;
  table["neg:f"] = decode_float<Negate, 1>;
  table["abs:f"] = decode_float<Absolute, 1>;
  table["copysign:f"] = decode_float<CopySign, 2>;
  table["rcp:f"] = decode_float<Reciprocal, 1>;
  table["sqrt:f"] = decode_float<SquareRoot, 1>;
  table["rsqrt:f"] = decode_float<ReciprocalSquareRoot, 1>;
  table["ex2:f"] = decode_float<Exp2, 1>;
  table["lg2:f"] = decode_float<Log2, 1>;
  table["sin:f"] = decode_float<Sine, 1>;
  table["cos:f"] = decode_float<Cosine, 1>;
  table["tanh:f"] = decode_float<HyperbolicTangent, 1>;
  table["testp:f"] = decode_testp;
}

}  // namespace warploom::emulator
