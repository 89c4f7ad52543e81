// ue8m0: powers of two, the scale factors of block-scaled formats (PTX ISA, "Alternate
// Floating-Point Data Formats"). A pattern b stands for 2^(b - 127); 255 is NaN.

#ifndef WARPLOOM_EMULATOR_FORMAT_SCALE_H_
#define WARPLOOM_EMULATOR_FORMAT_SCALE_H_

#include <cstdint>

namespace warploom::emulator {

constexpr uint32_t kScaleNan = 0xff;
constexpr uint32_t kScaleMax = 0xfe;

// |x| rounded down, or up, to a power of two that is at least 2^-127. What is too large becomes NaN
// or, with `satfinite`, the largest scale; NaN stays NaN.
uint32_t scale_from_float(float x, bool up, bool satfinite);

// Bits of the bf16 with the same value.
uint16_t scale_to_bf16(uint32_t scale);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_FORMAT_SCALE_H_
