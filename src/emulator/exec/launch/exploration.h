// A launch under many schedules, from the same contents of memory: all have to give the same.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_EXPLORATION_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_EXPLORATION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "emulator/exec/machine/program.h"
#include "emulator/exec/schedule/schedule.h"
#include "emulator/memory/memory.h"

namespace warploom::emulator {

struct Exploration {
  std::string problem;  // empty if all went well; names the schedule that shows it
  // kernel, mode, schedules: how many were executed, complete: whether these are all there are,
  // problem, note; of an exhaustive search, preemptions and bounded: whether there are schedules
  // with more of them
  std::string json;
};

// What is explored.
struct Explored {
  const Program& program;
  const GlobalMemory& memory;
  uint64_t clusters;
  // Executes the launch once; returns what went wrong.
  std::function<std::string(const SchedulerSource& schedulers, bool one_thread)> execute;
};

// `count` schedules of all strategies; the first is `base`, and the memory is as it leaves it.
Exploration explore(const Explored& launch, const Schedule& base, uint64_t count);

// At most `most` schedules, each with at most `preemptions`, in depth-first order
// (exec/schedule/exhaustive.h). The schedules of the clusters are searched one cluster after
// another, while the others keep to their first one: that is all if clusters do not communicate.
Exploration explore_exhaustively(const Explored& launch, uint64_t most, uint32_t preemptions);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_EXPLORATION_H_
