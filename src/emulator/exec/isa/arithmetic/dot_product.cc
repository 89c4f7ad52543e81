// Products that look at parts of a register: mul24, mad24, dp4a, dp2a (PTX ISA, "Integer Arithmetic
// Instructions").

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

// The low 24 bits of an operand, extended to 64.
template <class T>
int64_t low24(T value) {
  uint32_t bits = static_cast<uint32_t>(value) & 0xffffff;
  return std::is_signed_v<T> && (bits >> 23) != 0 ? int64_t{bits} - (1 << 24) : int64_t{bits};
}

// Of the 48 bits of a product, the low 32 or the high 32.
template <bool kHigh>
struct Multiply24 {
  template <class T>
  static T call(T a, T b) {
    return static_cast<T>(low24(a) * low24(b) >> (kHigh ? 16 : 0));
  }
};

template <bool kHigh>
struct Mad24 {
  template <class T>
  static T call(T a, T b, T c) {
    return static_cast<T>(static_cast<uint32_t>(Multiply24<kHigh>::call(a, b)) +
                          static_cast<uint32_t>(c));
  }
};

struct Mad24Saturate {
  static int32_t call(int32_t a, int32_t b, int32_t c) {
    int64_t sum = int64_t{Multiply24<true>::call(a, b)} + c;
    constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    return static_cast<int32_t>(sum < kLeast ? kLeast : sum > kMost ? kMost : sum);
  }
};

template <template <bool> class F, std::size_t kSources>
void decode_24(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  int half = modifiers.take_one({"lo", "hi"});
  if (half < 0) decoder.fail("it needs .lo or .hi");
  bool saturate = modifiers.take("sat");
  Type type = modifiers.take_type();
  if (type != Type::kU32 && type != Type::kS32) decoder.fail("it needs .u32 or .s32");
  decode_uniform(decoder, type, kSources);
  bool is_signed = type == Type::kS32;
  using I = int32_t;
  using U = uint32_t;
  if constexpr (kSources == 2) {
    static constexpr Run kRuns[2][2] = {{apply<F<false>, U, U, U>, apply<F<false>, I, I, I>},
                                        {apply<F<true>, U, U, U>, apply<F<true>, I, I, I>}};
    if (saturate) decoder.fail("it has no .sat");
    decoder.op.run = kRuns[half][is_signed];
  } else {
    static constexpr Run kRuns[2][2] = {
        {apply<F<false>, U, U, U, U>, apply<F<false>, I, I, I, I>},
        {apply<F<true>, U, U, U, U>, apply<F<true>, I, I, I, I>}};
    if (saturate && (half == 0 || !is_signed)) decoder.fail(".sat needs .hi and .s32");
    decoder.op.run = saturate ? apply<Mad24Saturate, I, I, I, I> : kRuns[half][is_signed];
  }
}

// Sum of c and the products of the elements of a with those of b; it wraps around.
template <class A, class B, int kElements, int kFirst>
struct DotProduct {
  static uint32_t call(uint32_t a, uint32_t b, uint32_t c) {
    A left[4 / sizeof(A)];
    B right[4];
    std::memcpy(left, &a, sizeof(a));
    std::memcpy(right, &b, sizeof(b));
    for (int i = 0; i < kElements; ++i) {
      c += static_cast<uint32_t>(int64_t{left[i]} * int64_t{right[kFirst + i]});
    }
    return c;
  }
};

template <class U, class S, int kElements, int kFirst>
Run dot_run(bool signed_a, bool signed_b) {
  using W = uint32_t;
  static constexpr Run kRuns[2][2] = {
      {apply<DotProduct<U, uint8_t, kElements, kFirst>, W, W, W, W>,
       apply<DotProduct<U, int8_t, kElements, kFirst>, W, W, W, W>},
      {apply<DotProduct<S, uint8_t, kElements, kFirst>, W, W, W, W>,
       apply<DotProduct<S, int8_t, kElements, kFirst>, W, W, W, W>}};
  return kRuns[signed_a][signed_b];
}

// Types of a and b; c and the result are .s32 if one of them is.
void decode_dot(Decoder& decoder, bool four) {
  Modifiers& modifiers = decoder.modifiers;
  int half = four ? 0 : modifiers.take_one({"lo", "hi"});
  if (half < 0) decoder.fail("it needs .lo or .hi");
  bool signs[2];
  for (bool& is_signed : signs) {
    Type type = modifiers.take_type();
    if (type != Type::kU32 && type != Type::kS32) decoder.fail("it needs .u32 or .s32 twice");
    is_signed = type == Type::kS32;
  }
  decode_uniform(decoder, signs[0] || signs[1] ? Type::kS32 : Type::kU32, 3);
  decoder.op.run = four        ? dot_run<uint8_t, int8_t, 4, 0>(signs[0], signs[1])
                   : half == 0 ? dot_run<uint16_t, int16_t, 2, 0>(signs[0], signs[1])
                               : dot_run<uint16_t, int16_t, 2, 2>(signs[0], signs[1]);
}

void decode_dp4a(Decoder& decoder) { decode_dot(decoder, true); }

void decode_dp2a(Decoder& decoder) { decode_dot(decoder, false); }

}  // namespace

void add_dot_product_ops(DecodeTable& table) {
  table["mul24"] = decode_24<Multiply24, 2>;
  table["mad24"] = decode_24<Mad24, 3>;
  table["dp4a"] = decode_dp4a;
  table["dp2a"] = decode_dp2a;
}

}  // namespace warploom::emulator
