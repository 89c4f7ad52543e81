#include "emulator/exec/machine/warpgroup.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {

bool Warpgroup::issue(uint32_t warp, const WgmmaIssue& issue) {
  uint64_t index = warps_[warp].issued++;
  if (index < executed_) fault("internal error: a wgmma was executed before all warps issued it");
  uint64_t position = index - executed_;
  if (position == queue_.size()) queue_.push_back({issue, 0});
  Entry& entry = queue_[position];
  if (entry.issue.op != issue.op) {
    fault("the warps of a warpgroup execute different wgmma instructions, at PTX lines %d and %d",
          entry.issue.op->source->line, issue.op->source->line);
  }
  if (entry.issue.a_descriptor != issue.a_descriptor ||
      entry.issue.b_descriptor != issue.b_descriptor ||
      entry.issue.accumulate != issue.accumulate) {
    fault("the warps of a warpgroup pass different operands to one wgmma");
  }
  entry.warps |= 1u << warp;
  return entry.warps == 0xf;
}

void Warpgroup::commit(uint32_t warp) {
  WarpState& state = warps_[warp];
  state.group_ends.push_back(state.issued);
  if (state.group_ends.size() > kMostGroups) state.group_ends.pop_front();
}

}  // namespace warploom::emulator
