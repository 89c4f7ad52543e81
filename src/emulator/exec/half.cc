// Arithmetic in f16 and bf16, also packed in pairs (PTX ISA, "Half Precision Floating-Point").

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "emulator/exec/lanes.h"
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
  static double load(uint16_t bits) { return f16_to_f32(bits); }
  static uint16_t store(double value) { return f32_to_f16(round_to_odd(value)); }
};

struct Bf16 {
  static double load(uint16_t bits) { return bf16_to_f32(bits); }
  static uint16_t store(double value) { return f32_to_bf16(round_to_odd(value)); }
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
struct Fma {
  static double call(double a, double b, double c) { return a * b + c; }  // the product is exact
};
template <bool kNan, bool kMax>
struct Extremum {
  static double call(double a, double b) {
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

template <class F>
struct Saturated {
  template <class... A>
  static double call(A... a) {
    double result = F::call(a...);
    return result >= 1 ? 1 : result > 0 ? result : 0;
  }
};

template <class F>
struct Rectified {
  template <class... A>
  static double call(A... a) {
    double result = F::call(a...);
    return std::isnan(result) || result > 0 ? result : 0;
  }
};

template <class F, class Format>
struct Scalar {
  template <class... A>
  static uint16_t call(A... a) { return Format::store(F::call(Format::load(a)...)); }
};

template <class F, class Format>
struct Packed {
  template <class... A>
  static uint32_t call(A... a) {
    uint32_t low = Scalar<F, Format>::call(static_cast<uint16_t>(a)...);
    uint32_t high = Scalar<F, Format>::call(static_cast<uint16_t>(a >> 16)...);
    return high << 16 | low;
  }
};

template <class F, std::size_t... I>
Run select(Type type, std::index_sequence<I...>) {
#define WARPLOOM_RUN(kind, format, integer) \
  apply<kind<F, format>, integer, decltype((void)I, integer{})...>
  switch (type) {
    case Type::kF16: return WARPLOOM_RUN(Scalar, F16, uint16_t);
    case Type::kBf16: return WARPLOOM_RUN(Scalar, Bf16, uint16_t);
    case Type::kF16x2: return WARPLOOM_RUN(Packed, F16, uint32_t);
    case Type::kBf16x2: return WARPLOOM_RUN(Packed, Bf16, uint32_t);
    default: return nullptr;
  }
#undef WARPLOOM_RUN
}

template <class F, std::size_t kSources>
void decode_half(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take_all({"rn", "approx"});
  bool sat = modifiers.take("sat");
  bool relu = modifiers.take("relu");
  Type type = modifiers.take_type();
  auto sources = std::make_index_sequence<kSources>{};
  decoder.op.run = sat    ? select<Saturated<F>>(type, sources)
                   : relu ? select<Rectified<F>>(type, sources)
                          : select<F>(type, sources);
  if (decoder.op.run == nullptr) decoder.fail("its type is not supported");
  decode_uniform(decoder, type, kSources);
}

template <bool kMax>
void decode_extremum(Decoder& decoder) {
  if (decoder.modifiers.take("NaN")) {
    decode_half<Extremum<true, kMax>, 2>(decoder);
  } else {
    decode_half<Extremum<false, kMax>, 2>(decoder);
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
