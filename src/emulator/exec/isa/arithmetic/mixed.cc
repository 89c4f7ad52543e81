// add, sub and fma of f32 with operands of f16 or bf16 (PTX ISA, "Mixed Precision Floating-Point
// Instructions").

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/rounding.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

struct Add {
  static float call(float a, float c) { return a + c; }
};

struct Subtract {
  static float call(float a, float c) { return a - c; }
};

struct Fma {
  static float call(float a, float b, float c) { return std::fma(a, b, c); }
};

template <class F, bool kBrain, bool kSaturate>
struct Mixed {
  // The last operand is f32, those before it are halves: each of them is an f32, too.
  static float call(uint16_t a, float c) { return finish(F::call(widen(a), c)); }
  static float call(uint16_t a, uint16_t b, float c) {
    return finish(F::call(widen(a), widen(b), c));
  }

 private:
  static float widen(uint16_t half) { return kBrain ? bf16_to_f32(half) : f16_to_f32(half); }
  static float finish(float x) {
    if (kSaturate) return x >= 1.0f ? 1.0f : x > 0.0f ? x : 0.0f;  // NaN becomes +0
    return std::isnan(x) ? bits_float(0x7fffffffu) : x;
  }
};

template <class F, bool kBrain, class... Halves>
Run select(bool saturates, int rounding) {
  return saturates
             ? with_rounding<apply<Mixed<F, kBrain, true>, float, Halves..., float>>(rounding)
             : with_rounding<apply<Mixed<F, kBrain, false>, float, Halves..., float>>(rounding);
}

template <class F, class... Halves>
void decode_mixed(Decoder& decoder) {
  constexpr std::size_t kHalves = sizeof...(Halves);
  Modifiers& modifiers = decoder.modifiers;
  const int rounding = modifiers.take_one({"rn", "rz", "rm", "rp"});
  const bool sat = modifiers.take("sat");
  const Type result = modifiers.take_type();
  const Type half = modifiers.take_type();
  if (result != Type::kF32 || (half != Type::kF16 && half != Type::kBf16)) {
    decoder.fail("with .f32 and another type it is .f32.f16 or .f32.bf16");
  }
  decoder.expect_count(kHalves + 2, kHalves + 2);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  for (std::size_t i = 0; i < kHalves; ++i) {
    decoder.op.s[i] = decoder.source(decoder.operand(1 + i), half);
  }
  decoder.op.s[kHalves] = decoder.source(decoder.operand(1 + kHalves), Type::kF32);
  decoder.op.run = half == Type::kBf16 ? select<F, true, Halves...>(sat, rounding)
                                       : select<F, false, Halves...>(sat, rounding);
}

}  // namespace

void add_mixed_ops(DecodeTable& table) {
  table["add:mixed"] = decode_mixed<Add, uint16_t>;
  table["sub:mixed"] = decode_mixed<Subtract, uint16_t>;
  table["fma:mixed"] = decode_mixed<Fma, uint16_t, uint16_t>;
}

}  // namespace warploom::emulator
