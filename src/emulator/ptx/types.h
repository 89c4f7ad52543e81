// The fundamental types of PTX (PTX ISA, "Types"), and what every stage has to know about them.

#ifndef WARPLOOM_EMULATOR_PTX_TYPES_H_
#define WARPLOOM_EMULATOR_PTX_TYPES_H_

#include <cstdint>
#include <string_view>

namespace warploom::emulator {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8, kB16, kB32, kB64, kB128,
  kU8, kU16, kU32, kU64,
  kS8, kS16, kS32, kS64,
  kF16, kF16x2, kBf16, kBf16x2, kTf32, kF32, kF32x2, kF64,
  kE4m3, kE5m2, kE4m3x2, kE5m2x2,
  kE2m1, kE2m3, kE3m2, kE2m1x2, kE2m3x2, kE3m2x2, kUe8m0, kUe8m0x2,
  kS4, kU4, kB1,
  kU16x2, kS16x2,
};

// The type that a modifier such as "f16x2" names, or kNone.
Type parse_type(std::string_view name);

// Name as in PTX, without the dot.
std::string_view type_name(Type type);

// Bits of one value in a register; packed types count all their elements. kPred has 1.
int type_bits(Type type);

bool is_signed(Type type);  // s8 to s64
bool is_float(Type type);   // f16 to f64, also packed; no 8-bit formats

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_PTX_TYPES_H_
