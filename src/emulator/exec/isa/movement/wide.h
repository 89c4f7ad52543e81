// Values of 128 bits: mov, ld, st and atom with .b128.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_WIDE_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_WIDE_H_

#include <cstdint>

#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {

// An element of a 128-bit register.
struct Bits128 {
  uint64_t low = 0;
  uint64_t high = 0;
};

inline Bits128* wide_lanes(const Warp& warp, Ref ref) { return warp.lanes<Bits128>(ref); }

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_WIDE_H_
