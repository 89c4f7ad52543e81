// The report of a launch: what its warps executed, moved, waited for and multiplied.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_LAUNCH_REPORT_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_LAUNCH_REPORT_H_

#include <string>

#include "emulator/exec/machine/counters.h"
#include "emulator/exec/schedule/grid.h"

namespace warploom::emulator {

// A JSON object. Instructions are those of warps; `problem` is empty if the launch ended well.
//   kernel, device, grid, block, cluster, problem
//   instructions: {total, by_class: {name: count}, by_warp: [count]}
//   bytes: {path: {read, written}}, with the paths of exec/machine/counters.h that were used
//   bank_conflicts: {wavefronts, extra, worst: [{place, executed, extra}]}
//   waits: {what: {executed, unready}}, worst_waits: [{place, executed, unready}]
//   tensor: {name: {instructions, flops}}
std::string launch_report(const Launch& launch, const Counters& counters,
                          const std::string& problem);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_LAUNCH_REPORT_H_
