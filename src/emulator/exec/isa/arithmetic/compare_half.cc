// setp and set of f16 and bf16, also in pairs (PTX ISA, "Half Precision Comparison Instructions").

#include <cstdint>

#include "emulator/exec/isa/arithmetic/compare.h"
#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

struct HalfForm : CompareForm {
  bool brain = false;   // bf16
  bool flush = false;   // subnormal f16 count as zeros
  bool packed = false;  // two comparisons, of the low and of the high halves
};

float load(const HalfForm& form, uint16_t bits) {
  if (form.brain) return bf16_to_f32(bits);
  if (form.flush && (bits & 0x7c00) == 0) bits &= 0x8000;
  return f16_to_f32(bits);
}

// A bit a lane, for the halves that begin at a bit of the sources.
uint32_t compare(const Warp& warp, const Op& op, const HalfForm& form, int shift) {
  const uint32_t* a = warp.lanes<uint32_t>(op.s[0]);
  const uint32_t* b = warp.lanes<uint32_t>(op.s[1]);
  uint32_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float x = load(form, static_cast<uint16_t>(a[lane] >> shift));
    const float y = load(form, static_cast<uint16_t>(b[lane] >> shift));
    result |= static_cast<uint32_t>((form.outcomes & outcome_of(x, y)) != 0) << lane;
  }
  return combine(warp, op, form.combine, result);
}

// "p|q": p is of the low halves, q of the high ones.
Step setp(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const HalfForm*>(op.form);
  const uint32_t low = compare(warp, op, form, 0);
  if (op.s[3].present()) warp.set_predicate(op.s[3], compare(warp, op, form, 16), active);
  warp.set_predicate(op.d, low, active);
  return Step::kNext;
}

Step set(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const HalfForm*>(op.form);
  const uint32_t low = compare(warp, op, form, 0);
  const uint32_t high = form.packed ? compare(warp, op, form, 16) : 0;
  uint32_t* d = warp.lanes<uint32_t>(op.d);
  for_each_lane(active, [&](int lane) {
    const uint32_t upper = high >> lane & 1 ? form.true_value << 16 : 0;
    d[lane] = upper | (low >> lane & 1 ? form.true_value : 0);
  });
  return Step::kNext;
}

HalfForm take_form(Decoder& decoder) {
  HalfForm form;
  static_cast<CompareForm&>(form) = take_comparison(decoder);
  form.flush = decoder.modifiers.take("ftz");
  return form;
}

void take_source_type(Decoder& decoder, HalfForm& form) {
  const Type type = decoder.modifiers.take_type();
  form.brain = type == Type::kBf16 || type == Type::kBf16x2;
  form.packed = type == Type::kF16x2 || type == Type::kBf16x2;
  if (form.brain && form.flush) decoder.fail(".ftz is for f16");
  decode_compared(decoder, form, type);
}

void decode_setp(Decoder& decoder) {
  HalfForm form = take_form(decoder);
  take_source_type(decoder, form);
  const ptx::Operand& destination = decoder.operand(0);
  decoder.op.d = decoder.destination(destination, 1);
  decoder.op.s[3] = decoder.second_destination(destination);
  if (decoder.op.s[3].present() && !form.packed) {
    decoder.fail("only .f16x2 and .bf16x2 have a second destination");
  }
  decoder.form(form);
  decoder.op.run = setp;
}

// What stands for true in a result: 1.0, or all bits; of two results, in 16 bits each.
uint32_t true_value(Type result, bool packed) {
  switch (result) {
    case Type::kF16: case Type::kF16x2: return 0x3c00;
    case Type::kBf16: case Type::kBf16x2: return 0x3f80;
    case Type::kU16: case Type::kS16: return 0xffff;
    default: return packed ? 0xffff : 0xffffffffu;
  }
}

bool is_result(Type result, bool packed) {
  switch (result) {
    case Type::kU32: case Type::kS32: return true;
    case Type::kF16x2: case Type::kBf16x2: return packed;
    case Type::kU16: case Type::kS16: case Type::kF16: case Type::kBf16: return !packed;
    default: return false;
  }
}

void decode_set(Decoder& decoder) {
  HalfForm form = take_form(decoder);
  const Type result = decoder.modifiers.take_type();
  take_source_type(decoder, form);
  if (!is_result(result, form.packed)) {
    decoder.fail("a comparison of halves gives integers of 16 or 32 bits or halves, one of pairs "
                 ".u32, .s32 or a pair");
  }
  form.true_value = true_value(result, form.packed);
  decoder.op.d = decoder.destination(decoder.operand(0), type_bits(result));
  decoder.form(form);
  decoder.op.run = set;
}

}  // namespace

void add_compare_half_ops(DecodeTable& table) {
  table["setp:h"] = decode_setp;
  table["set:h"] = decode_set;
}

}  // namespace warploom::emulator
