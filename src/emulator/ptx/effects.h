// What others can notice of an instruction: decided once, when a program is decoded.

#ifndef WARPLOOM_EMULATOR_PTX_EFFECTS_H_
#define WARPLOOM_EMULATOR_PTX_EFFECTS_H_

#include "emulator/ptx/module.h"

namespace warploom::emulator {

struct Effects {
  // Other warps of the cluster, or asynchronous operations, may synchronise with it. In a program
  // without data races, the order of these instructions decides everything.
  bool synchronises = false;
  // Through it CTAs of different clusters may synchronise, or see the order in which they run:
  // atomics, and other than weak accesses, of global memory; the heap; grid-wide scheduling.
  bool couples_clusters = false;
  // A warp that executes it may change what others see, or end: memory, a barrier, an asynchronous
  // operation. Not set for atomics, which may leave memory as it is: they tell when they do not.
  bool changes_state = false;
  // It adds floating-point numbers in no fixed order: results may differ in their last bits.
  bool sums_in_any_order = false;
};

Effects effects_of(const ptx::Instruction& instruction);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_PTX_EFFECTS_H_
