// Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions").

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

// Products of 16 and 32 bits fit in 64 bits, those of 64 bits need 128.
template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, Int128, Uint128>,
    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <class T>
T wrap_multiply(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

struct Add {
  template <class T>
  static T call(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};

struct AddSaturate {
  static int32_t call(int32_t a, int32_t b) {
    int64_t sum = int64_t{a} + b;
    return static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
  }
};

struct Subtract {
  template <class T>
  static T call(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};

struct SubtractSaturate {
  static int32_t call(int32_t a, int32_t b) {
    int64_t difference = int64_t{a} - b;
    return static_cast<int32_t>(std::clamp<int64_t>(difference, INT32_MIN, INT32_MAX));
  }
};

struct MultiplyLow {
  template <class T>
  static T call(T a, T b) { return wrap_multiply(a, b); }
};

struct MultiplyHigh {
  template <class T>
  static T call(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) >> (8 * sizeof(T)));
  }
};

struct MadLow {
  template <class T>
  static T call(T a, T b, T c) { return Add::call(wrap_multiply(a, b), c); }
};

struct MadHigh {
  template <class T>
  static T call(T a, T b, T c) { return Add::call(MultiplyHigh::call(a, b), c); }
};

template <class R>
struct MultiplyWide {
  template <class T>
  static R call(T a, T b) { return static_cast<R>(static_cast<R>(a) * static_cast<R>(b)); }
};

template <class R>
struct MadWide {
  template <class T>
  static R call(T a, T b, R c) { return Add::call(MultiplyWide<R>::call(a, b), c); }
};

// Division by zero gives all ones, and so does its remainder: what the hardware does.
struct Divide {
  template <class T>
  static T call(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Subtract::call(T{0}, a);
    return static_cast<T>(a / b);
  }
};

struct Remainder {
  template <class T>
  static T call(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};

struct Minimum {
  template <class T>
  static T call(T a, T b) { return a < b ? a : b; }
};

struct Maximum {
  template <class T>
  static T call(T a, T b) { return a > b ? a : b; }
};

struct Negate {
  template <class T>
  static T call(T a) { return Subtract::call(T{0}, a); }
};

struct Absolute {
  template <class T>
  static T call(T a) { return a < 0 ? Negate::call(a) : a; }
};

struct AbsoluteDifference {
  template <class T>
  static T call(T a, T b, T c) {
    return Add::call(c, a > b ? Subtract::call(a, b) : Subtract::call(b, a));
  }
};

// Negative results become zero.
template <class F>
struct Rectified {
  template <class T>
  static T call(T a, T b) { return std::max<T>(F::call(a, b), 0); }
};

// Both halves of a register, each as a T.
template <class F, class T>
struct Pair {
  static uint32_t call(uint32_t a, uint32_t b) {
    auto low = static_cast<uint16_t>(F::call(static_cast<T>(a), static_cast<T>(b)));
    auto high = static_cast<uint16_t>(F::call(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return static_cast<uint32_t>(high) << 16 | low;
  }
};

// Whether the type is a pair of 16-bit integers; then the instruction is decoded.
template <class F>
bool decode_pair(Decoder& decoder, bool rectify) {
  Type type = last_type(decoder.instruction());
  if (type != Type::kU16x2 && type != Type::kS16x2) return false;
  decode_uniform(decoder, decoder.modifiers.take_type(), 2);
  bool is_signed = type == Type::kS16x2;
  if (rectify && !is_signed) decoder.fail(".relu needs a signed type");
  using U = uint32_t;
  decoder.op.run = rectify     ? apply<Pair<Rectified<F>, int16_t>, U, U, U>
                   : is_signed ? apply<Pair<F, int16_t>, U, U, U>
                               : apply<Pair<F, uint16_t>, U, U, U>;
  return true;
}

Type take_integer_type(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  if (type == Type::kNone || is_float(type) || type_bits(type) < 16) {
    decoder.fail("it needs an integer type of 16 to 64 bits");
  }
  return type;
}

template <class F>
void decode_unary(Decoder& decoder) {
  Type type = take_integer_type(decoder);
  decode_uniform(decoder, type, 1);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    decoder.op.run = apply<F, T, T>;
  });
}

template <class F>
void decode_binary(Decoder& decoder) {
  Type type = take_integer_type(decoder);
  decode_uniform(decoder, type, 2);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    decoder.op.run = apply<F, T, T, T>;
  });
}

template <class F, class Saturating>
void decode_sum(Decoder& decoder) {
  if (decode_pair<F>(decoder, false)) return;
  bool saturate = decoder.modifiers.take("sat");
  decode_binary<F>(decoder);
  if (saturate) decoder.op.run = apply<Saturating, int32_t, int32_t, int32_t>;
}

template <class F>
void decode_extremum(Decoder& decoder) {
  bool rectify = decoder.modifiers.take("relu");
  if (decode_pair<F>(decoder, rectify)) return;
  decode_binary<F>(decoder);
  if (!rectify) return;
  if (last_type(decoder.instruction()) != Type::kS32) decoder.fail(".relu needs .s32 or .s16x2");
  decoder.op.run = apply<Rectified<F>, int32_t, int32_t, int32_t>;
}

void decode_sad(Decoder& decoder) {
  Type type = take_integer_type(decoder);
  decode_uniform(decoder, type, 3);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    decoder.op.run = apply<AbsoluteDifference, T, T, T, T>;
  });
}

template <class T>
using Doubled = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

enum Half { kLow, kHigh, kWide };

Half take_half(Decoder& decoder) {
  int half = decoder.modifiers.take_one({"lo", "hi", "wide"});
  if (half < 0) decoder.fail("it needs .lo, .hi or .wide");
  return static_cast<Half>(half);
}

void decode_mul(Decoder& decoder) {
  Half half = take_half(decoder);
  Type type = take_integer_type(decoder);
  if (half == kWide && type_bits(type) == 64) decoder.fail(".wide needs 16 or 32 bits");
  decoder.expect_count(3, 3);
  int factor = half == kWide ? 2 : 1;
  decoder.op.d = decoder.destination(decoder.operand(0), factor * type_bits(type));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), type);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = Doubled<T>;
    decoder.op.run = half == kLow    ? apply<MultiplyLow, T, T, T>
                     : half == kHigh ? apply<MultiplyHigh, T, T, T>
                                     : apply<MultiplyWide<R>, R, T, T>;
  });
}

Type doubled(Type type) {
  switch (type) {
    case Type::kU16: return Type::kU32;
    case Type::kS16: return Type::kS32;
    case Type::kU32: return Type::kU64;
    case Type::kS32: return Type::kS64;
    default: return Type::kNone;
  }
}

struct MadHighSaturate {
  static int32_t call(int32_t a, int32_t b, int32_t c) {
    return AddSaturate::call(MultiplyHigh::call(a, b), c);
  }
};

void decode_mad(Decoder& decoder) {
  Half half = take_half(decoder);
  bool saturate = decoder.modifiers.take("sat");
  Type type = take_integer_type(decoder);
  Type sum = half == kWide ? doubled(type) : type;
  if (sum == Type::kNone) decoder.fail(".wide needs 16 or 32 bits");
  decoder.expect_count(4, 4);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(sum));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), type);
  decoder.op.s[2] = decoder.source(decoder.operand(3), sum);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = Doubled<T>;
    decoder.op.run = half == kLow    ? apply<MadLow, T, T, T, T>
                     : half == kHigh ? apply<MadHigh, T, T, T, T>
                                     : apply<MadWide<R>, R, T, T, R>;
  });
  if (!saturate) return;
  if (half != kHigh || type != Type::kS32) decoder.fail(".sat needs .hi and .s32");
  decoder.op.run = apply<MadHighSaturate, int32_t, int32_t, int32_t, int32_t>;
}

}  // namespace

void add_integer_ops(DecodeTable& table) {
  table["add"] = decode_sum<Add, AddSaturate>;
  table["sub"] = decode_sum<Subtract, SubtractSaturate>;
  table["mul"] = decode_mul;
  table["mad"] = decode_mad;
  table["div"] = decode_binary<Divide>;
  table["rem"] = decode_binary<Remainder>;
  table["min"] = decode_extremum<Minimum>;
  table["max"] = decode_extremum<Maximum>;
  table["neg"] = decode_unary<Negate>;
  table["abs"] = decode_unary<Absolute>;
  table["sad"] = decode_sad;
}

}  // namespace warploom::emulator
