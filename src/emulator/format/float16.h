// f16 and bf16 to and from f32, inline and without branches, so that loops over them vectorise.
//
// The general conversions are in convert.h; these are the four that every kernel uses all the time.
// Rounding is to nearest, ties to even. NaN becomes the canonical NaN of the destination,
// but for bf16 to f32, which moves bits.

#ifndef WARPLOOM_EMULATOR_FORMAT_FLOAT16_H_
#define WARPLOOM_EMULATOR_FORMAT_FLOAT16_H_

#include <cstdint>
#include <cstring>

namespace warploom::emulator {

inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// `yes` where the condition holds, else `no`; in terms of bits, because compilers turn `?:` between
// floating-point operations, which may trap, into branches.
inline uint32_t select_bits(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float f16_to_f32(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  // Moved to the place of f32, the number is too small by the difference of the biases, 2^112;
  // multiplying by it normalises subnormal numbers as well.
  uint32_t bits = float_bits(bits_float(magnitude << 13) * 0x1p112f) | sign;
  bits = select_bits(magnitude == 0x7c00, sign | 0x7f800000u, bits);
  return bits_float(select_bits(magnitude > 0x7c00, 0x7fffffffu, bits));
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  // Normal: re-bias the exponent and round the 13 bits that go; a carry moves into the exponent.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  // Subnormal: adding 0.5 lets the hardware round at bit 2^-24, the unit of the result.
  const uint32_t small = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
  uint32_t result = select_bits(magnitude < (113u << 23), small, normal);
  // From 65520, half-way beyond the largest number, on.
  result = select_bits(magnitude >= 0x477ff000u, 0x7c00u, result) | sign;
  return static_cast<uint16_t>(select_bits(magnitude > 0x7f800000u, 0x7fffu, result));
}

inline float bf16_to_f32(uint16_t brain) {
  return bits_float(static_cast<uint32_t>(brain) << 16);
}

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(select_bits((bits & 0x7fffffffu) > 0x7f800000u, 0x7fffu, rounded));
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_FORMAT_FLOAT16_H_
