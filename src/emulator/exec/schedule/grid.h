// Runs a launch from its first CTA to its last.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_GRID_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_GRID_H_

#include <cstdint>
#include <memory>

#include "emulator/exec/machine/counters.h"
#include "emulator/exec/schedule/cluster_run.h"

namespace warploom::emulator {

// What a launch has done, up to its end or its fault.
struct LaunchTotals {
  uint64_t instructions = 0;           // of warps
  std::unique_ptr<Counters> counters;  // absent if no report is asked for

  void add(LaunchTotals other);
};
// What a cluster has done; its counters are taken away.
LaunchTotals take_totals(ClusterRun& cluster);

// A Fault if the launch has executed more than it may.
void check_instructions(const GridRun& run, uint64_t executed);

// Executes all clusters. Those that do not communicate run in several threads; results and reports
// are the same with any number of threads. Of the others as many are alive at a time as fit on the
// device, and take turns: a cluster runs until it ends unless it spins.
//
// Throws Fault on whatever the program does wrong, the one of the lowest cluster if there are
// several; asynchronous operations are lost then.
void run_grid(const GridRun& run, LaunchTotals& totals);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_GRID_H_
