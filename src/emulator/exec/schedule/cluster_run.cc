#include "emulator/exec/schedule/cluster_run.h"

#include <algorithm>

#include "emulator/base/fault.h"
#include "emulator/check/checker.h"
#include "emulator/exec/machine/global_place.h"
#include "emulator/exec/schedule/deadlock.h"

namespace warploom::emulator {
namespace {

// Turns after which other clusters get a chance, so that CTAs may wait for each other. Many, since
// each cluster that is alive takes megabytes for its registers.
constexpr int kTurns = 32768;
// In a cooperative launch they do wait for each other, and all of them are alive anyway.
constexpr int kCooperativeTurns = 256;
// Turns after which somebody looks whether the launch has to end.
constexpr int kWatchTurns = 64;
// Instructions in which a warp that polls something has to come back to where it was.
constexpr uint32_t kMostRepeated = 4096;

}  // namespace

ClusterRun::ClusterRun(const GridRun& run, uint64_t number, const Dim3& id)
    : run_(&run), scheduler_(run.schedulers(number)), cluster_(run.launch, number, id) {
  if (run.checks == nullptr) return;
  for (uint32_t rank = 0; rank < cluster_.size(); ++rank) {
    cluster_.cta(rank).tensor_memory().refuse_freed();
  }
  cluster_.set_observer(std::make_unique<Checker>(cluster_, *run.checks));
}

void ClusterRun::run_warp(Warp& warp, const Turn& turn) {
  try {
    cluster_.add_instructions(warp.run(turn.instructions, turn.to_sync));
  } catch (const Fault& error) {
    throw Fault(locate(explain(error, launch()), warp), error.kind());
  }
  if (cluster_.instructions() > run_->instruction_limit) {
    fault_of(FaultKind::kLimit,
             "the kernel %s did not end within the limit of instructions (%llu); it may be in an "
             "endless loop. Warps now:%s",
             launch().program.function->name.c_str(),
             static_cast<unsigned long long>(run_->instruction_limit),
             describe_warps(cluster_.warps()).c_str());
  }
}

void ClusterRun::complete(uint32_t which) {
  try {
    cluster_.completions().complete(which);
  } catch (const Fault& error) {
    const Dim3& first = cluster_.cta(0).id();
    throw Fault(format("%s (kernel %s, cluster of CTA (%u, %u, %u))",
                       explain(error, launch()).c_str(), launch().program.function->name.c_str(),
                       first[0], first[1], first[2]),
                error.kind());
  }
}

bool ClusterRun::run() {
  LivelockSchedule livelock(cluster_.instructions());
  const std::vector<Warp*>& warps = cluster_.warps();
  int turns = launch().workspace != 0 ? kCooperativeTurns : kTurns;
  for (int turn = 0; turn < turns; ++turn) {
    if (turn % kWatchTurns == 0) {
      run_->watch.check(cluster_.number());
      // What it waits for can only come from another cluster.
      std::vector<Polled> polled;
      bool due = livelock.is_due(cluster_.instructions());
      if (due && repeats_itself(polled) && !polled.empty()) return false;
    }
    ready_.clear();
    for (uint32_t i = 0; i < warps.size(); ++i) {
      if (warps[i]->ready()) ready_.push_back(i);
    }
    if (!ready_.empty() || !cluster_.completions().empty()) {
      Turn next = scheduler_->next(ready_, cluster_.completions().count());
      if (next.completes) {
        complete(next.which);
      } else {
        Warp& warp = *warps[ready_[next.which]];
        run_warp(warp, next);
        scheduler_->ran(warp.stop());
      }
      continue;
    }
    bool alive = std::any_of(warps.begin(), warps.end(),
                             [](const Warp* warp) { return warp->alive() != 0; });
    if (!alive) return true;
    fault_of(FaultKind::kDeadlock,
             "deadlock in kernel %s: no warp can go on and no asynchronous operation is pending.%s",
             launch().program.function->name.c_str(), describe_warps(warps).c_str());
  }
  return false;
}

// The state to come back to is taken anew after 1, 2, 4, ... instructions, so that what comes
// before the loop does not matter.
bool ClusterRun::repeats_itself(Warp& warp, std::vector<Polled>& polled) {
  constexpr Turn kOne{};
  const uint64_t changes = cluster_.changes();
  Polled seen{&warp, nullptr, 0};
  std::vector<uint8_t> state;
  const Op* start = nullptr;
  uint32_t taken = 0;
  for (uint32_t step = 0; step < kMostRepeated && warp.ready(); ++step) {
    if (step >= 2 * taken) {
      state = warp.state();
      start = warp.next_op();
      taken = step == 0 ? 1 : step;
      seen.op = nullptr;
    }
    const Op* op = warp.next_op();
    const uint32_t lanes = warp.next_lanes();
    if (lanes != 0 && op->changes_state) return false;
    if (lanes != 0 && op->address.base.present()) {
      // A wait, or an access that orders others, tells more than other reads.
      if (seen.op == nullptr || op->synchronises || !seen.op->synchronises) {
        seen.op = op;
        seen.address = warp.address(*op, __builtin_ctz(lanes));
      }
    }
    run_warp(warp, kOne);
    if (cluster_.changes() != changes) return false;
    if (warp.ready() && warp.next_op() == start && warp.state() == state) {
      polled.push_back(seen);
      return true;
    }
  }
  // Parked now: it can do nothing by itself.
  return !warp.ready();
}

bool ClusterRun::repeats_itself(std::vector<Polled>& polled) {
  if (!cluster_.completions().empty()) return false;
  for (Warp* warp : cluster_.warps()) {
    if (warp->ready() && !repeats_itself(*warp, polled)) return false;
  }
  return true;
}

std::string ClusterRun::describe_parked() const {
  std::vector<Warp*> parked;
  for (Warp* warp : cluster_.warps()) {
    if (!warp->ready()) parked.push_back(warp);
  }
  return describe_warps(parked);
}

}  // namespace warploom::emulator
