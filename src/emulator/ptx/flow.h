// Where the threads that a branch separates come together again.

#ifndef WARPLOOM_EMULATOR_PTX_FLOW_H_
#define WARPLOOM_EMULATOR_PTX_FLOW_H_

#include <vector>

#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

// For every instruction that can diverge (guarded bra, brx.idx) the index of the first instruction
// that all paths from it to the end of the function share: its immediate post-dominator. -1 for
// other instructions, and where the paths share only the end.
std::vector<int> reconvergence_points(const Function& function);

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_FLOW_H_
