// Livelock: warps that poll for something that can no longer happen.
//
// A warp that is in a state again in which it has been before, with the same registers, and with no
// memory changed in between, does the same for ever. If that is so for all warps of all clusters
// that are alive, and no asynchronous operation is pending, nothing will ever change. Clusters are
// looked at now and then, so that it costs nothing while they run.

#ifndef WARPLOOM_EMULATOR_EXEC_SCHEDULE_LIVELOCK_H_
#define WARPLOOM_EMULATOR_EXEC_SCHEDULE_LIVELOCK_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

class ClusterRun;

// What a warp that repeats itself looks at.
struct Polled {
  const Warp* warp = nullptr;
  const Op* op = nullptr;  // nullptr: it reads no memory
  uint64_t address = 0;
};

// When to look: after some instructions first, and then after half as many as up to then.
class LivelockSchedule {
 public:
  // `executed` instructions up to now.
  explicit LivelockSchedule(uint64_t executed) : begin_(executed), next_(executed + kFirst) {}

  bool is_due(uint64_t executed) {
    if (executed < next_) return false;
    next_ = executed + std::max((executed - begin_) / 2, kFirst);
    return true;
  }

 private:
  static constexpr uint64_t kFirst = 1 << 14;

  uint64_t begin_;
  uint64_t next_;
};

// A Fault if none of these clusters, which are all that can run, will ever make progress. Executes
// some of their instructions.
void check_livelock(const std::vector<ClusterRun*>& clusters);

// "CTA (0, 0, 0) warp 1 repeats itself; it reads global 0x... at PTX line 12: ...", a line each.
std::string describe_polled(const std::vector<Polled>& polled);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_SCHEDULE_LIVELOCK_H_
