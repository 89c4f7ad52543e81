// What the modifiers .rz, .rm, .rp and .ftz add to floating-point arithmetic.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_ROUNDING_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_ROUNDING_H_

#include <cfenv>
#include <cmath>
#include <cstdint>

#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

// Subnormal numbers become zeros of the same sign.
inline float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
inline double flush(double x) { return std::fabs(x) < 0x1p-1022 ? std::copysign(0.0, x) : x; }

// Executes another Run in a rounding mode that is not the default one.
template <int kMode, Run kRun>
Step rounded(Warp& warp, const Op& op, uint32_t active) {
  int before = std::fegetround();
  std::fesetround(kMode);
  Step step = kRun(warp, op, active);
  std::fesetround(before);
  return step;
}

template <Run kRun>
Run with_rounding(int mode) {
  switch (mode) {
    case 1: return rounded<FE_TOWARDZERO, kRun>;
    case 2: return rounded<FE_DOWNWARD, kRun>;
    case 3: return rounded<FE_UPWARD, kRun>;
    default: return kRun;
  }
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_ROUNDING_H_
