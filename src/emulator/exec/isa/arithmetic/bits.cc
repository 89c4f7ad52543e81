// Shifts, counts of bits and bit fields (PTX ISA, "Logic and Shift Instructions" and
// "Integer Arithmetic Instructions").

#include "emulator/exec/isa/arithmetic/bits.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {

Type take_bits(Decoder& decoder, int least) {
  Type type = decoder.modifiers.take_type();
  if (type == Type::kNone || is_float(type) || type_bits(type) < least) {
    decoder.fail("its type is not supported");
  }
  return type;
}

namespace {

struct ShiftLeft {
  template <class T>
  static T call(T a, uint32_t n) {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n);
  }
};

struct ShiftRight {
  template <class T>
  static T call(T a, uint32_t n) {
    constexpr uint32_t kMost = 8 * sizeof(T) - 1;
    if (n > kMost) return std::is_signed_v<T> ? static_cast<T>(a >> kMost) : T{0};
    return static_cast<T>(a >> n);
  }
};

struct PopulationCount {
  template <class T>
  static uint32_t call(T a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }
};

struct LeadingZeros {
  template <class T>
  static uint32_t call(T a) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    return a == 0 ? kBits : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - kBits);
  }
};

struct Reverse {
  template <class T>
  static T call(T a) {
    T result = 0;
    for (uint32_t i = 0; i < 8 * sizeof(T); ++i) {
      result = static_cast<T>(result << 1 | (a >> i & 1));
    }
    return result;
  }
};

// Position and length of a field: 32-bit instructions look at the low byte of their operands, those
// of 64 bits at all of them. Whatever is beyond the operand is the same from 255 on.
template <class T>
uint32_t field_operand(uint32_t value) {
  return sizeof(T) == 8 ? std::min(value, 255u) : value & 0xff;
}

struct FieldExtract {
  template <class T>
  static T call(T a, uint32_t position, uint32_t length) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    position = field_operand<T>(position);
    length = field_operand<T>(length);
    using U = std::make_unsigned_t<T>;
    U sign = 0;
    if (std::is_signed_v<T> && length != 0) {
      sign = static_cast<U>(a) >> std::min(position + length - 1, kBits - 1) & 1;
    }
    U field = position >= kBits ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
    U mask = length >= kBits ? static_cast<U>(-1) : static_cast<U>((U{1} << length) - 1);
    // Beyond the operand the field is filled with the sign.
    uint32_t valid = position >= kBits ? 0 : kBits - position;
    U known = valid >= kBits ? static_cast<U>(-1) : static_cast<U>((U{1} << valid) - 1);
    U value = static_cast<U>((field & mask & known) | (sign != 0 ? ~(mask & known) : U{0}));
    return static_cast<T>(value);
  }
};

struct FieldInsert {
  template <class T>
  static T call(T a, T b, uint32_t position, uint32_t length) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    position = field_operand<T>(position);
    length = field_operand<T>(length);
    if (position >= kBits || length == 0) return b;
    T mask = length >= kBits ? static_cast<T>(-1) : static_cast<T>((T{1} << length) - 1);
    mask = static_cast<T>(mask << position);
    return static_cast<T>((b & ~mask) | (static_cast<T>(a << position) & mask));
  }
};

struct FieldFind {
  template <class T>
  static uint32_t call(T a) {
    using U = std::make_unsigned_t<T>;
    U bits = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
    return bits == 0 ? ~0u : 63 - static_cast<uint32_t>(__builtin_clzll(bits));
  }
};

template <bool kLeft, bool kClamp>
struct Funnel {
  static uint32_t call(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t n = kClamp ? std::min(c, 32u) : c & 31;
    uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    return static_cast<uint32_t>(kLeft ? both << n >> 32 : both >> n);
  }
};

template <class F>
void decode_shift(Decoder& decoder) {
  Type type = take_bits(decoder, 16);
  decoder.expect_count(3, 3);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(type));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), Type::kU32);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    decoder.op.run = apply<F, T, T, uint32_t>;
  });
}

template <class F, bool kKeepsType>
void decode_count(Decoder& decoder) {
  Type type = take_bits(decoder, 32);
  decoder.expect_count(2, 2);
  decoder.op.d = decoder.destination(decoder.operand(0), kKeepsType ? type_bits(type) : 32);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  bool wide = type_bits(type) == 64;
  if constexpr (kKeepsType) {
    decoder.op.run = wide ? apply<F, uint64_t, uint64_t> : apply<F, uint32_t, uint32_t>;
  } else {
    decoder.op.run = wide ? apply<F, uint32_t, uint64_t> : apply<F, uint32_t, uint32_t>;
  }
}

struct FieldFindShift {
  template <class T>
  static uint32_t call(T a) {
    uint32_t position = FieldFind::call(a);
    return position == ~0u ? position : 8 * sizeof(T) - 1 - position;
  }
};

void decode_bfind(Decoder& decoder) {
  bool shift = decoder.modifiers.take("shiftamt");
  Type type = take_bits(decoder, 32);
  decoder.expect_count(2, 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    decoder.op.run = shift ? apply<FieldFindShift, uint32_t, T> : apply<FieldFind, uint32_t, T>;
  });
}

void decode_bfe(Decoder& decoder) {
  Type type = take_bits(decoder, 32);
  decoder.expect_count(4, 4);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(type));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.s[2] = decoder.source(decoder.operand(3), Type::kU32);
  with_integer(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    decoder.op.run = apply<FieldExtract, T, T, uint32_t, uint32_t>;
  });
}

void decode_bfi(Decoder& decoder) {
  Type type = take_bits(decoder, 32);
  decoder.expect_count(5, 5);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(type));
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), type);
  decoder.op.s[2] = decoder.source(decoder.operand(3), Type::kU32);
  decoder.op.s[3] = decoder.source(decoder.operand(4), Type::kU32);
  bool wide = type_bits(type) == 64;
  decoder.op.run = wide ? apply<FieldInsert, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>
                        : apply<FieldInsert, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
}

void decode_shf(Decoder& decoder) {
  bool left = decoder.modifiers.take_one({"r", "l"}) == 1;
  bool clamp = decoder.modifiers.take_one({"wrap", "clamp"}) == 1;
  decode_uniform(decoder, take_bits(decoder, 32), 3);
  using U = uint32_t;
  decoder.op.run = left ? (clamp ? apply<Funnel<true, true>, U, U, U, U>
                                 : apply<Funnel<true, false>, U, U, U, U>)
                        : (clamp ? apply<Funnel<false, true>, U, U, U, U>
                                 : apply<Funnel<false, false>, U, U, U, U>);
}

}  // namespace

void add_bit_ops(DecodeTable& table) {
  table["shl"] = decode_shift<ShiftLeft>;
  table["shr"] = decode_shift<ShiftRight>;
  table["popc"] = decode_count<PopulationCount, false>;
  table["clz"] = decode_count<LeadingZeros, false>;
  table["brev"] = decode_count<Reverse, true>;
  table["bfind"] = decode_bfind;
  table["bfe"] = decode_bfe;
  table["bfi"] = decode_bfi;
  table["shf"] = decode_shf;
}

}  // namespace warploom::emulator
