// cvt to and from ue8m0x2, pairs of scale factors.

#include <cstddef>
#include <cstdint>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/format/float16.h"
#include "emulator/format/scale.h"

namespace warploom::emulator {
namespace {

template <bool kUp, bool kSatfinite>
struct FromFloats {
  static uint16_t call(float high, float low) {
    return static_cast<uint16_t>(scale_from_float(high, kUp, kSatfinite) << 8 |
                                 scale_from_float(low, kUp, kSatfinite));
  }
};

template <bool kUp, bool kSatfinite>
struct FromBf16 {
  static uint16_t call(uint32_t pair) {
    return FromFloats<kUp, kSatfinite>::call(bits_float(pair & 0xffff0000u),
                                             bits_float(pair << 16));
  }
};

struct ToBf16 {
  static uint32_t call(uint16_t pair) {
    return static_cast<uint32_t>(scale_to_bf16(pair >> 8)) << 16 | scale_to_bf16(pair & 0xff);
  }
};

template <template <bool, bool> class F, class... A>
Run select(bool up, bool satfinite) {
  using R = uint16_t;
  if (up) return satfinite ? apply<F<true, true>, R, A...> : apply<F<true, false>, R, A...>;
  return satfinite ? apply<F<false, true>, R, A...> : apply<F<false, false>, R, A...>;
}

void decode_scale(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  int rounding = modifiers.take_one({"rz", "rp", "rn"});
  bool satfinite = modifiers.take("satfinite");
  Type to = modifiers.take_type();
  Type from = modifiers.take_type();
  Op& op = decoder.op;
  op.d = decoder.destination(decoder.operand(0), type_bits(to));
  op.s[0] = decoder.source(decoder.operand(1), from);
  std::size_t sources = from == Type::kF32 ? 2 : 1;
  decoder.expect_count(1 + sources, 1 + sources);
  if (to == Type::kBf16x2 && rounding == 2 && !satfinite) {
    op.run = apply<ToBf16, uint32_t, uint16_t>;
    return;
  }
  bool narrows = to == Type::kUe8m0x2 && (from == Type::kF32 || from == Type::kBf16x2);
  if (!narrows || rounding < 0 || rounding == 2) {
    decoder.fail("from .f32 or .bf16x2 it needs .rz or .rp, and to .bf16x2 .rn");
  }
  if (from == Type::kF32) {
    op.s[1] = decoder.source(decoder.operand(2), from);
    op.run = select<FromFloats, float, float>(rounding == 1, satfinite);
  } else {
    op.run = select<FromBf16, uint32_t>(rounding == 1, satfinite);
  }
}

}  // namespace

void add_convert_scale_ops(DecodeTable& table) { table["cvt.ue8m0x2"] = decode_scale; }

}  // namespace warploom::emulator
