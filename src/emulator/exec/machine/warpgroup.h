// wgmma is issued by four warps together and executed in order once all of them have issued it.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_WARPGROUP_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_WARPGROUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

// One wgmma.mma_async, as far as its warps have issued it.
struct WgmmaIssue {
  const Op* op = nullptr;
  uint64_t a_descriptor = 0;
  uint64_t b_descriptor = 0;
  bool accumulate = false;
};

// The queue of one warpgroup. Each warp issues and commits by itself; an instruction can be
// executed once all four warps have issued it, and has been when wait_group returns.
class Warpgroup {
 public:
  // wait_group may leave fewer groups than this pending.
  static constexpr std::size_t kMostGroups = 64;

  // Warp 0 to 3 issues its next instruction, which has to be the one that the others issue.
  // Returns whether all four warps have issued that instruction now.
  bool issue(uint32_t warp, const WgmmaIssue& issue);
  void commit(uint32_t warp);

  // Executes instructions in order by `execute(issue)` until all groups of the warp but the
  // `allowed` latest ones are done; false if other warps have to issue first.
  template <class Execute>
  bool wait(uint32_t warp, uint32_t allowed, Execute execute) {
    const auto& ends = warps_[warp].group_ends;
    if (ends.size() <= allowed) return true;
    uint64_t target = ends[ends.size() - 1 - allowed];
    return execute_until(target, execute);
  }

  // Executes whatever all warps have issued.
  template <class Execute>
  void execute_issued(Execute execute) {
    execute_until(UINT64_MAX, execute);
  }

 private:
  struct Entry {
    WgmmaIssue issue;
    uint32_t warps = 0;  // bit i: warp i has issued it
  };
  struct WarpState {
    uint64_t issued = 0;
    std::deque<uint64_t> group_ends;  // `issued` at the latest commits, oldest first
  };

  template <class Execute>
  bool execute_until(uint64_t target, Execute execute) {
    while (executed_ < target) {
      if (queue_.empty() || queue_.front().warps != 0xf) return false;
      WgmmaIssue issue = queue_.front().issue;
      queue_.pop_front();
      ++executed_;
      execute(issue);
    }
    return true;
  }

  std::deque<Entry> queue_;
  uint64_t executed_ = 0;
  std::array<WarpState, 4> warps_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_WARPGROUP_H_
