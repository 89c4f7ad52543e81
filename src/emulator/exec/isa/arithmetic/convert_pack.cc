// cvt.pack: two integers, clamped to a narrow type, side by side (PTX ISA, "cvt.pack").

#include <algorithm>
#include <cstdint>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

struct PackForm {
  int bits;  // of a result
  int32_t least;
  int32_t most;
};

constexpr PackForm unsigned_of(int bits) { return {bits, 0, (1 << bits) - 1}; }
constexpr PackForm signed_of(int bits) {
  return {bits, -(1 << (bits - 1)), (1 << (bits - 1)) - 1};
}

// The result of a is above that of b; what the third source holds moves up beside them.
Step pack_integers(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const PackForm*>(op.form);
  const uint32_t mask = (1u << form.bits) - 1;
  const auto narrow = [&](uint32_t value) {
    return static_cast<uint32_t>(
               std::clamp(static_cast<int32_t>(value), form.least, form.most)) & mask;
  };
  const uint32_t* a = warp.lanes<uint32_t>(op.s[0]);
  const uint32_t* b = warp.lanes<uint32_t>(op.s[1]);
  const uint32_t* c = op.s[2].present() ? warp.lanes<uint32_t>(op.s[2]) : nullptr;
  uint32_t* d = warp.lanes<uint32_t>(op.d);
  for_each_lane(active, [&](int lane) {
    const uint32_t above = c != nullptr ? c[lane] << (2 * form.bits) : 0;
    d[lane] = above | narrow(a[lane]) << form.bits | narrow(b[lane]);
  });
  return Step::kNext;
}

void decode_pack(Decoder& decoder) {
  static constexpr PackForm kForms[] = {unsigned_of(16), signed_of(16), unsigned_of(8),
                                        signed_of(8),    unsigned_of(4), signed_of(4),
                                        unsigned_of(2),  signed_of(2)};
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take("pack");
  const bool sat = modifiers.take("sat");
  const int index = modifiers.take_one({"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"});
  if (!sat || index < 0 || !modifiers.take("s32")) {
    decoder.fail("it is .sat to integers of 16, 8, 4 or 2 bits, from .s32");
  }
  const PackForm& form = kForms[index];
  const bool third = form.bits < 16;
  if (third && !modifiers.take("b32")) decoder.fail("below 16 bits it needs .b32");
  decoder.expect_count(third ? 4 : 3, third ? 4 : 3);
  Op& op = decoder.op;
  op.d = decoder.destination(decoder.operand(0), 32);
  op.s[0] = decoder.source(decoder.operand(1), Type::kS32);
  op.s[1] = decoder.source(decoder.operand(2), Type::kS32);
  if (third) op.s[2] = decoder.source(decoder.operand(3), Type::kB32);
  op.form = &form;
  op.run = pack_integers;
}

}  // namespace

void add_convert_pack_ops(DecodeTable& table) { table["cvt.pack"] = decode_pack; }

}  // namespace warploom::emulator
