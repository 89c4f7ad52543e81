// Runs one cluster: warps and asynchronous operations take turns as its scheduler says.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_CLUSTER_RUN_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_CLUSTER_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/check/launch_checks.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/schedule/livelock.h"
#include "emulator/exec/schedule/schedule.h"
#include "emulator/exec/schedule/watch.h"

namespace warploom::emulator {

// How a launch is run. Constant meanwhile.
struct GridRun {
  const Launch& launch;
  SchedulerSource schedulers;
  uint64_t instruction_limit;      // of warps, until the launch is given up
  uint32_t threads;                // of the host, at most
  Watch& watch;
  LaunchChecks* checks = nullptr;  // nullptr: nothing is checked
};

class ClusterRun {
 public:
  // `number` counts the clusters of the grid, `id` is its coordinates. `run` must outlive it.
  ClusterRun(const GridRun& run, uint64_t number, const Dim3& id);

  Cluster& cluster() { return cluster_; }
  const Cluster& cluster() const { return cluster_; }

  // Runs until every warp has exited and nothing is pending (true), or for some time (false).
  bool run();

  // Whether none of its warps can make progress by itself (exec/schedule/livelock.h), and what they
  // look at then. Executes some instructions.
  bool repeats_itself(std::vector<Polled>& polled);
  // One line for every warp that is parked.
  std::string describe_parked() const;

 private:
  const Launch& launch() const { return run_->launch; }
  void run_warp(Warp& warp, const Turn& turn);
  void complete(uint32_t which);
  bool repeats_itself(Warp& warp, std::vector<Polled>& polled);

  const GridRun* run_;
  std::unique_ptr<Scheduler> scheduler_;
  Cluster cluster_;
  std::vector<uint32_t> ready_;  // of one turn
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_CLUSTER_RUN_H_
