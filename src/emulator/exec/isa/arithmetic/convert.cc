// cvt: conversions that kernels use all the time inline, all others through format/convert.h.

#include "emulator/exec/isa/lanes.h"

#include <cstdint>
#include <type_traits>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/format/convert.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

Step convert(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CvtForm*>(op.form);
  for_each_lane(active, [&](int lane) {
    warp.set_value(op.d, lane, cvt(form, warp.value(op.s[0], lane)));
  });
  return Step::kNext;
}

Step convert_pair(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CvtForm*>(op.form);
  for_each_lane(active, [&](int lane) {
    warp.set_value(op.d, lane,
                   cvt_pack2(form, warp.value(op.s[0], lane), warp.value(op.s[1], lane)));
  });
  return Step::kNext;
}

struct WidenF16 {
  static float call(uint16_t a) { return f16_to_f32(a); }
};
struct WidenBf16 {
  static float call(uint16_t a) { return bf16_to_f32(a); }
};
struct NarrowF16 {
  static uint16_t call(float a) { return f32_to_f16(a); }
};
struct NarrowBf16 {
  static uint16_t call(float a) { return f32_to_bf16(a); }
};
struct PackF16 {
  static uint32_t call(float high, float low) {
    return static_cast<uint32_t>(f32_to_f16(high)) << 16 | f32_to_f16(low);
  }
};
struct PackBf16 {
  static uint32_t call(float high, float low) {
    return static_cast<uint32_t>(f32_to_bf16(high)) << 16 | f32_to_bf16(low);
  }
};
template <class R>
struct ToInteger {
  template <class T>
  static R call(T a) { return static_cast<R>(a); }
};

// An integer conversion extends what it reads and truncates; a wider register holds the result
// extended by its sign.
template <class From>
Run integer_run(int source_bits, int result_bits, Type to) {
  using Wide = std::conditional_t<std::is_signed_v<From>, int64_t, uint64_t>;
  if (source_bits == 32 && sizeof(From) <= 4 && result_bits == 32 && type_bits(to) == 32) {
    return apply<ToInteger<uint32_t>, uint32_t, From>;
  }
  if (source_bits == 32 && sizeof(From) <= 4 && result_bits == 64 && type_bits(to) == 64) {
    return apply<ToInteger<Wide>, Wide, From>;
  }
  return nullptr;
}

Run fast_run(const CvtForm& form, const Op& op) {
  if (form.sat || form.satfinite || form.relu) return nullptr;
  bool exact_widths = op.s[0].bits == 32 && op.d.bits == 32;
  if (form.to == Type::kF32 && form.from == Type::kF16 && exact_widths) {
    return apply<WidenF16, float, uint16_t>;
  }
  if (form.to == Type::kF32 && form.from == Type::kBf16 && exact_widths) {
    return apply<WidenBf16, float, uint16_t>;
  }
  Run run = nullptr;
  if (form.from == Type::kF32 && form.rounding == Rounding::kRn && !form.ftz && exact_widths) {
    if (form.to == Type::kF16) return apply<NarrowF16, uint16_t, float>;
    if (form.to == Type::kBf16) return apply<NarrowBf16, uint16_t, float>;
  }
  if (!is_float(form.from) && !is_float(form.to) && type_bits(form.from) <= 32) {
    with_integer(form.from, [&](auto tag) {
      using From = typename decltype(tag)::type;
      if constexpr (sizeof(From) <= 4) run = integer_run<From>(op.s[0].bits, op.d.bits, form.to);
    });
  }
  return run;
}

Rounding take_rounding(Decoder& decoder) {
  static constexpr Rounding kModes[] = {Rounding::kRn,  Rounding::kRz,  Rounding::kRm,
                                        Rounding::kRp,  Rounding::kRna, Rounding::kRni,
                                        Rounding::kRzi, Rounding::kRmi, Rounding::kRpi};
  int index =
      decoder.modifiers.take_one({"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"});
  return index < 0 ? Rounding::kNone : kModes[index];
}

// A source may be in a register that is wider than its type.
Ref wide_source(Decoder& decoder, const ptx::Operand& operand, Type type) {
  if (operand.kind == ptx::Operand::kRegister) return decoder.destination(operand, 0);
  return decoder.source(operand, type_bits(type) < 16 ? Type::kB32 : type);
}

void decode_cvt(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  CvtForm form{};
  form.rounding = take_rounding(decoder);
  form.ftz = modifiers.take("ftz");
  form.satfinite = modifiers.take("satfinite");
  form.sat = modifiers.take("sat");
  form.relu = modifiers.take("relu");
  form.to = modifiers.take_type();
  form.from = modifiers.take_type();
  try {
    check_cvt(form);
  } catch (const Fault& error) {
    decoder.fail(error.what());
  }
  decoder.form(form);
  decoder.expect_count(2, 3);
  Op& op = decoder.op;
  op.d = decoder.destination(decoder.operand(0), 0);
  if (op.d.bits == 1 || op.d.bits < type_bits(form.to)) decoder.fail("its result is too wide");
  op.s[0] = wide_source(decoder, decoder.operand(1), form.from);
  if (decoder.count() == 2) {
    Run fast = fast_run(form, op);
    op.run = fast != nullptr ? fast : convert;
    return;
  }
  op.s[1] = wide_source(decoder, decoder.operand(2), form.from);
  bool plain = !form.relu && !form.satfinite && form.rounding == Rounding::kRn && !form.ftz &&
               form.from == Type::kF32;
  op.run = plain && form.to == Type::kF16x2    ? apply<PackF16, uint32_t, float, float>
           : plain && form.to == Type::kBf16x2 ? apply<PackBf16, uint32_t, float, float>
                                               : convert_pair;
}

}  // namespace

void add_convert_ops(DecodeTable& table) { table["cvt"] = decode_cvt; }

}  // namespace warploom::emulator
