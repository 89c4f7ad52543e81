// Stochastic rounding: up with a probability that is the fraction that would be lost.

#ifndef WARPLOOM_EMULATOR_FORMAT_STOCHASTIC_H_
#define WARPLOOM_EMULATOR_FORMAT_STOCHASTIC_H_

#include <cstdint>

#include "emulator/format/float_format.h"
#include "emulator/format/number.h"

namespace warploom::emulator {

constexpr int kMostRandomBits = 16;

// Rounds the magnitude to the format: up if the fraction of the last place that is lost, cut to
// `bits` binary places, and `random` / 2^bits add up to 1 or more. `random` has that many bits.
// What is too large becomes infinite or, with `satfinite` or where there is no infinity, the
// largest finite number.
uint64_t encode_stochastic(const FloatFormat& format, const Number& number, uint32_t random,
                           int bits, bool satfinite);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_FORMAT_STOCHASTIC_H_
