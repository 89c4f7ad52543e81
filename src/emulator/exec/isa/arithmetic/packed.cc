// Arithmetic on two f32 in a 64-bit register (PTX ISA, add, sub, mul and fma with .f32x2).

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/rounding.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

struct Add {
  static float call(float a, float b) { return a + b; }
};

struct Subtract {
  static float call(float a, float b) { return a - b; }
};

struct Multiply {
  static float call(float a, float b) { return a * b; }
};

struct Fma {
  static float call(float a, float b, float c) { return std::fma(a, b, c); }
};

template <class F, bool kFlush>
struct Pair {
  template <class... A>
  static uint64_t call(uint64_t a, A... rest) {
    uint64_t high = half(a >> 32, (rest >> 32)...);
    return high << 32 | half(a, rest...);
  }

 private:
  template <class... A>
  static uint32_t half(A... operands) {
    auto read = [](uint64_t bits) {
      float value = bits_float(static_cast<uint32_t>(bits));
      return kFlush ? flush(value) : value;
    };
    float result = F::call(read(operands)...);
    if (std::isnan(result)) return 0x7fffffffu;
    return float_bits(kFlush ? flush(result) : result);
  }
};

template <class F, std::size_t... I>
Run select(bool ftz, int rounding, std::index_sequence<I...>) {
  // One uint64_t for each source; the comma operator only repeats it.
  return ftz ? with_rounding<apply<Pair<F, true>, uint64_t, decltype((void)I, uint64_t{})...>>(
                   rounding)
             : with_rounding<apply<Pair<F, false>, uint64_t, decltype((void)I, uint64_t{})...>>(
                   rounding);
}

template <class F, std::size_t kSources>
void decode_pair(Decoder& decoder) {
  bool ftz = decoder.modifiers.take("ftz");
  int rounding = decoder.modifiers.take_one({"rn", "rz", "rm", "rp"});
  decode_uniform(decoder, decoder.modifiers.take_type(), kSources);
  decoder.op.run = select<F>(ftz, rounding, std::make_index_sequence<kSources>{});
}

}  // namespace

void add_packed_ops(DecodeTable& table) {
  table["add:f32x2"] = decode_pair<Add, 2>;
  table["sub:f32x2"] = decode_pair<Subtract, 2>;
  table["mul:f32x2"] = decode_pair<Multiply, 2>;
  table["fma:f32x2"] = decode_pair<Fma, 3>;
}

}  // namespace warploom::emulator
