// What ends a launch from outside: the user's interrupt, the time limit, the failure of a cluster.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_WATCH_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>

namespace warploom::emulator {

// Thrown by a cluster whose result nobody wants any more. Never leaves run_grid.
class Abandoned : public std::runtime_error {
 public:
  Abandoned() : std::runtime_error("an earlier cluster has failed") {}
};

// Shared by the threads of one launch.
class Watch {
 public:
  // `seconds` 0: no limit. `interrupted` may be nullptr.
  Watch(double seconds, const std::atomic<bool>* interrupted);

  // Called now and then by everything that runs on behalf of a cluster: throws Fault if the launch
  // has to end, Abandoned if only the cluster has to.
  void check(uint64_t cluster) const;

  // The error that is reported is the one of the lowest cluster: those after it may stop.
  void fail(uint64_t cluster);
  uint64_t first_failed() const { return first_failed_.load(std::memory_order_relaxed); }

 private:
  double seconds_;
  std::chrono::steady_clock::time_point end_;
  const std::atomic<bool>* interrupted_;
  std::atomic<uint64_t> first_failed_{UINT64_MAX};
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_WATCH_H_
