// Clusters that do not communicate, in several threads.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_PARALLEL_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_PARALLEL_H_

#include "emulator/exec/schedule/grid.h"

namespace warploom::emulator {

// Executes the clusters one by one in each of run.threads threads. What they did is put together
// in the order of their numbers, so that nothing depends on which thread was faster.
void run_apart(const GridRun& run, const GridShape& shape, LaunchTotals& totals);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_PARALLEL_H_
