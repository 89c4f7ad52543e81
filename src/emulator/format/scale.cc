#include "emulator/format/scale.h"

#include <algorithm>
#include <cmath>

#include "emulator/format/float16.h"

namespace warploom::emulator {

uint32_t scale_from_float(float x, bool up, bool satfinite) {
  if (std::isnan(x)) return kScaleNan;
  uint32_t magnitude = float_bits(x) & 0x7fffffffu;
  // 2^-127, the least scale, is a subnormal f32.
  constexpr uint32_t kLeast = 0x00400000u;
  uint32_t scale = magnitude >> 23;
  bool above = scale == 0 ? magnitude > kLeast : (magnitude & 0x7fffffu) != 0;
  if (up && above) ++scale;
  return satfinite ? std::min(scale, kScaleMax) : std::min(scale, kScaleNan);
}

uint16_t scale_to_bf16(uint32_t scale) {
  if (scale == kScaleNan) return 0x7fff;
  return static_cast<uint16_t>(scale == 0 ? 0x40 : scale << 7);
}

}  // namespace warploom::emulator
