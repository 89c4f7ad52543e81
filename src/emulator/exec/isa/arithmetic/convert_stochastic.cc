// cvt.rs: f32 to two or four narrower numbers, rounded by random bits (PTX ISA, "cvt").
//
// Each number has its own random bits: the first of a pair bits 16 and up, the second bits 0 and up
// (13 of them for f16, 16 for bf16); each of four one byte, the first the uppermost. The hardware
// may share the bits of four in another way; the probabilities are the same.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/format/stochastic.h"

namespace warploom::emulator {
namespace {

struct Target {
  std::string_view name;
  Type element;
  int count;
  int width;        // of the place of an element
  int result_bits;
  int random_bits;
};

constexpr Target kTargets[] = {
    {"f16x2", Type::kF16, 2, 16, 32, 13},  {"bf16x2", Type::kBf16, 2, 16, 32, 16},
    {"e4m3x4", Type::kE4m3, 4, 8, 32, 8},  {"e5m2x4", Type::kE5m2, 4, 8, 32, 8},
    {"e2m3x4", Type::kE2m3, 4, 8, 32, 8},  {"e3m2x4", Type::kE3m2, 4, 8, 32, 8},
    {"e2m1x4", Type::kE2m1, 4, 4, 16, 8},
};

struct StochasticForm {
  const Target* target = nullptr;
  bool relu = false;
  bool satfinite = false;
};

uint64_t round_one(const StochasticForm& form, uint32_t bits, uint32_t random) {
  Number number = decode(*float_format(Type::kF32), bits);
  if (form.relu && number.negative && number.kind != Number::Kind::kNan) number = Number{};
  const Target& target = *form.target;
  random &= (1u << target.random_bits) - 1;
  return encode_stochastic(*float_format(target.element), number, random, target.random_bits,
                           form.satfinite);
}

// The first of the numbers comes to the top of the result.
Step convert(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const StochasticForm*>(op.form);
  const Target& target = *form.target;
  const Ref* sources = warp.program().refs.data() + op.first;
  const int stride = 32 / target.count;
  for_each_lane(active, [&](int lane) {
    const auto random = static_cast<uint32_t>(warp.value(op.s[0], lane));
    uint64_t result = 0;
    for (int i = 0; i < target.count; ++i) {
      const auto bits = static_cast<uint32_t>(warp.value(sources[i], lane));
      const int below = target.count - 1 - i;
      result = result << target.width | round_one(form, bits, random >> (below * stride));
    }
    warp.set_value(op.d, lane, result);
  });
  return Step::kNext;
}

const Target* take_target(Modifiers& modifiers) {
  for (const Target& target : kTargets) {
    if (modifiers.take(target.name)) return &target;
  }
  return nullptr;
}

// cvt.rs.f16x2.f32 d, a, b, random; cvt.rs.satfinite.e4m3x4.f32 d, {a, b, e, f}, random
void decode_stochastic(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  StochasticForm form;
  modifiers.take("rs");
  form.relu = modifiers.take("relu");
  form.satfinite = modifiers.take("satfinite");
  form.target = take_target(modifiers);
  if (form.target == nullptr || modifiers.take_type() != Type::kF32) {
    decoder.fail(
        ".rs rounds .f32 to .f16x2, .bf16x2, .e4m3x4, .e5m2x4, .e2m3x4, .e3m2x4 or .e2m1x4");
  }
  const bool four = form.target->count == 4;
  if (four && !form.satfinite) decoder.fail("a result of four numbers takes .satfinite");
  decoder.expect_count(four ? 3 : 4, four ? 3 : 4);
  Op& op = decoder.op;
  if (four) {
    decoder.sources(decoder.operand(1), Type::kF32);
    if (op.count != 4) decoder.fail("it has a wrong number of registers");
  } else {
    op.first = static_cast<uint32_t>(decoder.refs().size());
    op.count = 2;
    for (std::size_t i = 1; i <= 2; ++i) {
      decoder.refs().push_back(decoder.source(decoder.operand(i), Type::kF32));
    }
  }
  op.s[0] = decoder.source(decoder.operand(four ? 2 : 3), Type::kB32);
  op.d = decoder.destination(decoder.operand(0), form.target->result_bits);
  decoder.form(form);
  op.run = convert;
}

}  // namespace

void add_convert_stochastic_ops(DecodeTable& table) { table["cvt.rs"] = decode_stochastic; }

}  // namespace warploom::emulator
