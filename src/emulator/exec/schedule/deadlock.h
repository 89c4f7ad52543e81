// Where warps are, in words.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_DEADLOCK_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_DEADLOCK_H_

#include <string>
#include <vector>

#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {


// A message, and after it the kernel, CTA, warp and instruction that it is about.
std::string locate(const std::string& message, const Warp& warp);

// One line for every group of lanes that has not exited: where it is and what it waits for.
std::string describe_warps(const std::vector<Warp*>& warps);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_DEADLOCK_H_
