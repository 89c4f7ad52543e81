#include "emulator/exec/machine/cluster.h"

#include <algorithm>
#include <utility>

#include "emulator/check/checker.h"
#include "emulator/exec/machine/counters.h"
#include "emulator/exec/machine/global_place.h"
#include "emulator/exec/schedule/deadlock.h"
#include "emulator/exec/schedule/livelock.h"

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

uint32_t Launch::dynamic_offset() const {
  uint32_t alignment = std::max(program.dynamic_alignment, 16u);
  uint32_t end = SharedMemory::kReserved + program.static_shared;
  return (end + alignment - 1) / alignment * alignment;
}

uint32_t Launch::shared_bytes() const { return dynamic_offset() + dynamic_shared; }

Cta::Cta(Cluster& cluster, uint32_t rank, const Dim3& id)
    : cluster_(&cluster),
      rank_(rank),
      id_(id),
      registers_(*cluster.launch().program.function, volume(cluster.launch().block)) {
  const Launch& launch = cluster.launch();
  storage_.resize(launch.shared_bytes());
  shared_.data = storage_.data();
  shared_.bytes = static_cast<uint32_t>(storage_.size());
  if (launch.checks != nullptr) tensor_memory_.refuse_freed();
  uint32_t threads = volume(launch.block);
  uint32_t count = (threads + kLanes - 1) / kLanes;
  warpgroups_.resize((count + 3) / 4);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t left = threads - i * kLanes;
    uint32_t lanes = left >= kLanes ? kAllLanes : (1u << left) - 1;
    warps_.push_back(std::make_unique<Warp>(*this, i, lanes));
  }
}

uint32_t Cta::alive_threads() const {
  uint32_t count = 0;
  for (const auto& warp : warps_) count += warp->alive() != 0 ? kLanes : 0;
  return count;
}

void Cta::wake(Wait::Kind kind, uint64_t key) {
  for (const auto& warp : warps_) warp->wake(kind, key);
}

void Cta::wake_all(Wait::Kind kind) {
  for (const auto& warp : warps_) warp->wake_all(kind);
}

void Cta::on_exit(Warp& warp) {
  if (warp.alive() == 0) {
    registers_.exit(warp.id());
    uint32_t completed = barriers_.completed_by_exit(alive_threads());
    if (completed != NamedBarriers::kCount) {
      if (Checker* checker = cluster_->checker()) checker->barrier_complete(*this, completed);
      wake(Wait::kNamedBarrier, completed);
    }
    if (alive_threads() == 0) tensor_memory_.allocator().check_exit();
  }
  Checker* checker = cluster_->checker();
  if (checker != nullptr && warp.alive() == 0) checker->exit(warp);
  cluster_->check_barrier();
}

Cluster::Cluster(const Launch& launch, uint64_t number, const Dim3& id)
    : launch_(&launch), number_(number), id_(id), scheduler_(launch.schedulers(number)) {
  const Dim3& shape = launch.cluster;
  for (uint32_t rank = 0; rank < volume(shape); ++rank) {
    Dim3 cta{id[0] * shape[0] + rank % shape[0], id[1] * shape[1] + rank / shape[0] % shape[1],
             id[2] * shape[2] + rank / shape[0] / shape[1]};
    ctas_.push_back(std::make_unique<Cta>(*this, rank, cta));
    for (const auto& warp : ctas_.back()->warps()) warps_.push_back(warp.get());
  }
  if (launch.counted != nullptr) {
    counters_ = std::make_unique<Counters>(launch.program, *launch.counted);
  }
  if (launch.checks != nullptr) checker_ = std::make_unique<Checker>(*this, *launch.checks);
}

Cluster::~Cluster() { launch_->output.add(number_, printed); }

std::unique_ptr<Counters> Cluster::take_counters() { return std::move(counters_); }

Cta& Cluster::cta(uint32_t rank) const {
  if (rank >= ctas_.size()) {
    fault("there is no CTA of rank %u in a cluster of %zu", rank, ctas_.size());
  }
  return *ctas_[rank];
}

void Cluster::check_barrier() {
  bool any = false;
  for (const Warp* warp : warps_) {
    if (warp->alive() & ~warp->cluster_arrived) return;
    any |= warp->cluster_arrived != 0;
  }
  if (!any || warps_.empty()) return;
  ++barrier_phase_;
  if (checker_ != nullptr) checker_->cluster_complete();
  for (Warp* warp : warps_) {
    warp->cluster_arrived = 0;
    warp->wake(Wait::kClusterBarrier, 0);
  }
}

void Cluster::run_warp(Warp& warp, const Turn& turn) {
  try {
    instructions_ += warp.run(turn.instructions, turn.to_sync);
  } catch (const Fault& error) {
    throw Fault(locate(explain(error, *launch_), warp), error.kind());
  }
  if (instructions_ > launch_->instruction_limit) {
    fault_of(FaultKind::kLimit,
             "the kernel %s did not end within the limit of instructions (%llu); it may be in an "
             "endless loop. Warps now:%s",
             launch_->program.function->name.c_str(),
             static_cast<unsigned long long>(launch_->instruction_limit),
             describe_warps(warps_).c_str());
  }
}

void Cluster::complete(uint32_t which) {
  try {
    completions_.complete(which);
  } catch (const Fault& error) {
    const Dim3& first = ctas_.front()->id();
    throw Fault(format("%s (kernel %s, cluster of CTA (%u, %u, %u))",
                       explain(error, *launch_).c_str(), launch_->program.function->name.c_str(),
                       first[0], first[1], first[2]),
                error.kind());
  }
}

bool Cluster::run() {
  LivelockSchedule livelock(instructions_);
  int turns = launch_->workspace != 0 ? kCooperativeTurns : kTurns;
  for (int turn = 0; turn < turns; ++turn) {
    if (turn % kWatchTurns == 0) {
      launch_->watch.check(number_);
      // What it waits for can only come from another cluster.
      std::vector<Polled> polled;
      if (livelock.is_due(instructions_) && repeats_itself(polled) && !polled.empty()) return false;
    }
    ready_.clear();
    for (uint32_t i = 0; i < warps_.size(); ++i) {
      if (warps_[i]->ready()) ready_.push_back(i);
    }
    if (!ready_.empty() || !completions_.empty()) {
      Turn next = scheduler_->next(ready_, completions_.count());
      if (next.completes) {
        complete(next.which);
      } else {
        Warp& warp = *warps_[ready_[next.which]];
        run_warp(warp, next);
        scheduler_->ran(warp.stop());
      }
      continue;
    }
    bool alive = std::any_of(warps_.begin(), warps_.end(),
                             [](const Warp* warp) { return warp->alive() != 0; });
    if (!alive) return true;
    fault_of(FaultKind::kDeadlock,
             "deadlock in kernel %s: no warp can go on and no asynchronous operation is pending.%s",
             launch_->program.function->name.c_str(), describe_warps(warps_).c_str());
  }
  return false;
}

// The state to come back to is taken anew after 1, 2, 4, ... instructions, so that what comes
// before the loop does not matter.
bool Cluster::repeats_itself(Warp& warp, std::vector<Polled>& polled) {
  constexpr Turn kOne{};
  const uint64_t changes = changes_;
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
    if (changes_ != changes) return false;
    if (warp.ready() && warp.next_op() == start && warp.state() == state) {
      polled.push_back(seen);
      return true;
    }
  }
  // Parked now: it can do nothing by itself.
  return !warp.ready();
}

bool Cluster::repeats_itself(std::vector<Polled>& polled) {
  if (!completions_.empty()) return false;
  for (Warp* warp : warps_) {
    if (warp->ready() && !repeats_itself(*warp, polled)) return false;
  }
  return true;
}

std::string Cluster::describe_parked() const {
  std::vector<Warp*> parked;
  for (Warp* warp : warps_) {
    if (!warp->ready()) parked.push_back(warp);
  }
  return describe_warps(parked);
}

}  // namespace warploom::emulator
