// Who goes next in a cluster: one of the warps that can run, or an asynchronous operation that can
// complete. PTX promises no order, so every strategy shows behaviour that hardware may show too;
// each looks for other mistakes.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_SCHEDULE_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {

enum class Strategy : uint8_t {
  kRandom,      // any warp; operations complete at any time
  kRoundRobin,  // one after the other
  kLate,        // operations complete only when no warp can run
  kEarly,       // operations complete as soon as they are issued
  kFarAhead,    // one warp runs until it waits, then the next in a random order of precedence
};
constexpr int kStrategies = 5;

// "random", "round-robin", "late", "early" and "far-ahead".
const char* strategy_name(Strategy strategy);
// False if there is no strategy of this name.
bool find_strategy(const std::string& name, Strategy* strategy);

// Equal schedules of equal programs give equal results, whatever the number of threads.
struct Schedule {
  Strategy strategy = Strategy::kRandom;
  uint64_t seed = 1;
};
// "strategy late, seed 7".
std::string describe_schedule(const Schedule& schedule);

// What is done next.
struct Turn {
  bool completes = false;     // an asynchronous operation completes; else a warp runs
  uint32_t which = 0;         // index among those that can
  uint32_t instructions = 1;  // that the warp may execute
  bool to_sync = false;       // the warp stops behind an instruction that others can notice
};

// Makes the choices of one cluster.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // `ready` has the numbers, within the cluster and in ascending order, of the warps that can run;
  // `pending` operations can complete, the oldest first. One of them is not empty.
  virtual Turn next(const std::vector<uint32_t>& ready, uint32_t pending) = 0;
  // The turn of a warp is over.
  virtual void ran(Stop) {}
};

// Gives the scheduler of a cluster by its number in the grid. Called by several threads at a time.
using SchedulerSource = std::function<std::unique_ptr<Scheduler>(uint64_t cluster)>;

SchedulerSource schedulers_of(const Schedule& schedule);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_SCHEDULE_H_
