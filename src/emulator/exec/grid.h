// Runs a launch from its first CTA to its last.

#ifndef WARPLOOM_EMULATOR_EXEC_GRID_H_
#define WARPLOOM_EMULATOR_EXEC_GRID_H_

#include "emulator/exec/cluster.h"

namespace warploom::emulator {

// Executes all clusters. As many are alive at a time as fit on the device; a cluster runs until it
// ends unless it spins, so that CTAs that do not wait for each other run one after the other.
// Throws Fault on whatever the program does wrong; asynchronous operations are lost then.
void run_grid(Launch& launch);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_GRID_H_
