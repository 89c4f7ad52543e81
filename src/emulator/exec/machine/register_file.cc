#include "emulator/exec/machine/register_file.h"

#include <algorithm>

#include "emulator/base/device.h"
#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kStep = 8;                  // registers are allocated in such steps
constexpr uint32_t kLeast = 24;                // that setmaxnreg may leave

uint32_t warps_of(uint32_t threads) { return (threads + kWarpThreads - 1) / kWarpThreads; }

bool is_bounded(const ptx::Function& function) {
  return function.bounds_threads || function.register_limit != 0;
}

std::string text_of(RegisterChange change) {
  return format("setmaxnreg.%s %u", change.increases ? "inc" : "dec", change.count);
}

}  // namespace

uint32_t launch_registers(const ptx::Function& function, uint32_t threads) {
  const uint32_t most = function.bounds_threads ? function.threads_limit : threads;
  const uint32_t ctas = std::max(function.min_ctas, 1u);
  uint32_t count = kRegistersPerCta / (warps_of(most) * kWarpThreads * ctas) / kStep * kStep;
  if (function.register_limit != 0) {
    count = std::min(count, (function.register_limit + kStep - 1) / kStep * kStep);
  }
  return std::clamp(count, kLeast, kMaxThreadRegisters);
}

RegisterFile::RegisterFile(const ptx::Function& function, uint32_t threads)
    : at_launch_(launch_registers(function, threads)),
      is_bounded_(is_bounded(function)),
      warps_(warps_of(threads)),
      changes_((warps_.size() + kGroup - 1) / kGroup) {
  for (WarpShare& warp : warps_) warp.count = at_launch_;
}

// The changes of the warps of a warpgroup are the same ones, and no warp is two ahead of another.
void RegisterFile::note(uint32_t warp, RegisterChange change) {
  WarpShare& own = warps_[warp];
  std::vector<RegisterChange>& changes = changes_[warp / kGroup];
  const std::size_t number = own.changes++;
  if (number == changes.size()) changes.push_back(change);
  if (!(changes[number] == change)) {
    fault("this is %s, and another warp of warpgroup %u executes %s. Fix: all four warps of a "
          "warpgroup execute the same setmaxnreg",
          text_of(change).c_str(), warp / kGroup, text_of(changes[number]).c_str());
  }
  const uint32_t first = warp / kGroup * kGroup;
  for (uint32_t other = first; other < first + kGroup && other < warps_.size(); ++other) {
    const WarpShare& mate = warps_[other];
    if (mate.changes <= number && mate.exited) {
      fault("warp %u of warpgroup %u has exited without this instruction. Fix: all four warps of a "
            "warpgroup execute the same setmaxnreg",
            other, warp / kGroup);
    }
    if (mate.changes < number) {
      fault("warp %u of warpgroup %u has not executed the %s before this one yet. Fix: a barrier "
            "of the warpgroup between two setmaxnreg",
            other, warp / kGroup, text_of(changes[mate.changes]).c_str());
    }
  }
}

bool RegisterFile::change(uint32_t warp, RegisterChange change) {
  WarpShare& own = warps_[warp];
  if (!own.waits) note(warp, change);
  if (!change.increases) {
    if (change.count > own.count && is_bounded_) {
      fault("setmaxnreg.dec to %u registers, and the warp has %u. Fix: setmaxnreg.inc", change.count,
            own.count);
    }
    const uint32_t kept = std::min(own.count, change.count);
    free_ += own.count - kept;
    own.count = kept;
    return true;
  }
  const uint32_t missing = change.count - std::min(own.count, change.count);
  own.waits = missing > free_;
  if (own.waits) return false;
  free_ -= missing;
  own.count += missing;
  return true;
}

void RegisterFile::exit(uint32_t warp) {
  WarpShare& own = warps_[warp];
  const std::vector<RegisterChange>& changes = changes_[warp / kGroup];
  own.exited = true;
  if (own.changes < changes.size()) {
    fault("warp %u exits without the %s that other warps of warpgroup %u execute. Fix: all four "
          "warps of a warpgroup execute the same setmaxnreg",
          warp, text_of(changes[own.changes]).c_str(), warp / kGroup);
  }
}

std::string RegisterFile::describe(uint32_t warp, uint32_t wanted) const {
  std::string holders;
  for (std::size_t first = 0; first < warps_.size();) {
    std::size_t next = first;
    while (next < warps_.size() && warps_[next].count == warps_[first].count) ++next;
    holders += format("%s%zu to %zu: %u", first == 0 ? "" : ", ", first, next - 1,
                      warps_[first].count);
    first = next;
  }
  const auto count = static_cast<uint32_t>(warps_.size());
  return format("would wait for ever for %u registers a thread: it has %u, needs %u more, and %u "
                "are free. The launch gave %u to each of %u warps; warps %s. Fix: the sum over all "
                "warps of what setmaxnreg leaves them may be at most %u",
                wanted, warps_[warp].count, wanted - warps_[warp].count, free_, at_launch_, count,
                holders.c_str(), at_launch_ * count);
}

}  // namespace warploom::emulator
