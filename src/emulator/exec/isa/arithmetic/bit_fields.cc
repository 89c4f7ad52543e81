// Masks, sign extension, the n-th set bit and permutations of bytes (PTX ISA, "Integer Arithmetic
// Instructions" and "prmt").

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

// `width` ones from bit `position` on. Beyond 31, .clamp saturates and .wrap takes the value
// modulo 32.
template <bool kClamp>
struct Mask {
  static uint32_t call(uint32_t position, uint32_t width) {
    if (kClamp && position > 31) return 0;
    uint32_t low = position & 31;
    uint32_t end = low + (width & 31);
    uint32_t above = end > 31 || (kClamp && width > 31) ? 0 : ~0u << end;
    return ~0u << low & ~above;
  }
};

// The low `width` bits, extended by zeros or by their sign.
template <bool kClamp, bool kSigned>
struct Extend {
  static uint32_t call(uint32_t value, uint32_t width) {
    if (kClamp && width > 31) return value;
    uint32_t kept = width & 31;
    uint32_t above = ~0u << kept;
    bool negative = kSigned && kept != 0 && (value >> (kept - 1) & 1) != 0;
    return (value & ~above) | (negative ? above : 0);
  }
};

template <class Clamped, class Wrapped>
void decode_limited(Decoder& decoder, Type type) {
  int mode = decoder.modifiers.take_one({"clamp", "wrap"});
  if (mode < 0) decoder.fail("it needs .clamp or .wrap");
  decoder.expect_count(3, 3);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  decoder.op.s[0] = decoder.source(decoder.operand(1), type);
  decoder.op.s[1] = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.run = mode == 0 ? apply<Clamped, uint32_t, uint32_t, uint32_t>
                             : apply<Wrapped, uint32_t, uint32_t, uint32_t>;
}

void decode_bmsk(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  if (type != Type::kB32) decoder.fail("it needs .b32");
  decode_limited<Mask<true>, Mask<false>>(decoder, type);
}

void decode_szext(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  if (type == Type::kS32) {
    decode_limited<Extend<true, true>, Extend<false, true>>(decoder, type);
  } else if (type == Type::kU32) {
    decode_limited<Extend<true, false>, Extend<false, false>>(decoder, type);
  } else {
    decoder.fail("it needs .u32 or .s32");
  }
}

// Position of the |n|-th set bit from `base` on, upwards or, for a negative n, downwards; with n 0,
// the base itself if its bit is set. All ones if there is none.
struct FindSet {
  static uint32_t call(uint32_t mask, uint32_t base, int32_t n) {
    const int step = n < 0 ? -1 : 1;
    int64_t left = n == 0 ? 1 : std::abs(int64_t{n});
    for (int64_t position = base; position >= 0 && position < 32; position += step) {
      if ((mask >> position & 1) != 0 && --left == 0) return static_cast<uint32_t>(position);
      if (n == 0) break;
    }
    return ~0u;
  }
};

void decode_fns(Decoder& decoder) {
  if (decoder.modifiers.take_type() != Type::kB32) decoder.fail("it needs .b32");
  decoder.expect_count(4, 4);
  decoder.op.d = decoder.destination(decoder.operand(0), 32);
  for (std::size_t i = 0; i < 3; ++i) {
    decoder.op.s[i] = decoder.source(decoder.operand(i + 1), Type::kB32);
  }
  decoder.op.run = apply<FindSet, uint32_t, uint32_t, uint32_t, int32_t>;
}

uint32_t byte_of(uint64_t bytes, uint32_t index) {
  return static_cast<uint32_t>(bytes >> (8 * index)) & 0xff;
}

// Bytes of {b, a} chosen by nibbles of c; a nibble's highest bit replicates the sign.
struct Permute {
  static uint32_t call(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t selector = c >> (4 * i) & 0xf;
      uint32_t byte = byte_of(bytes, selector & 7);
      if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

// In the other modes, each byte's place follows from two bits of c.
template <uint32_t (*kPlace)(uint32_t byte, uint32_t selector)>
struct PermuteBy {
  static uint32_t call(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) result |= byte_of(bytes, kPlace(i, c & 3)) << (8 * i);
    return result;
  }
};

uint32_t forward(uint32_t byte, uint32_t selector) { return selector + byte; }
uint32_t backward(uint32_t byte, uint32_t selector) { return (selector - byte) & 7; }
uint32_t replicate8(uint32_t, uint32_t selector) { return selector; }
uint32_t clamp_left(uint32_t byte, uint32_t selector) { return std::max(byte, selector); }
uint32_t clamp_right(uint32_t byte, uint32_t selector) { return std::min(byte, selector); }
uint32_t replicate16(uint32_t byte, uint32_t selector) { return (selector & 1) * 2 + (byte & 1); }

template <class F>
constexpr Run kTernary = apply<F, uint32_t, uint32_t, uint32_t, uint32_t>;

void decode_prmt(Decoder& decoder) {
  static constexpr Run kModes[] = {
      kTernary<Permute>,
      kTernary<PermuteBy<forward>>,
      kTernary<PermuteBy<backward>>,
      kTernary<PermuteBy<replicate8>>,
      kTernary<PermuteBy<clamp_left>>,
      kTernary<PermuteBy<clamp_right>>,
      kTernary<PermuteBy<replicate16>>,
  };
  int mode = decoder.modifiers.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}) + 1;
  if (decoder.modifiers.take_type() != Type::kB32) decoder.fail("it needs .b32");
  decode_uniform(decoder, Type::kB32, 3);
  decoder.op.run = kModes[mode];
}

}  // namespace

void add_bit_field_ops(DecodeTable& table) {
  table["bmsk"] = decode_bmsk;
  table["szext"] = decode_szext;
  table["fns"] = decode_fns;
  table["prmt"] = decode_prmt;
}

}  // namespace warploom::emulator
