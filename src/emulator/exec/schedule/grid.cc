#include "emulator/exec/schedule/grid.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/base/device.h"
#include "emulator/exec/schedule/livelock.h"
#include "emulator/exec/schedule/parallel.h"
#include "emulator/ptx/sizes.h"

namespace warploom::emulator {
namespace {

constexpr uint64_t kMostClusterBytes = uint64_t{4} << 30;

uint32_t warps_of(const Launch& launch) { return (volume(launch.block) + kLanes - 1) / kLanes; }

// Clusters that the device can hold. Registers are not counted: their number is not known here.
uint64_t resident_clusters(const Launch& launch) {
  uint32_t by_warps = kMaxWarps / warps_of(launch);
  uint32_t by_shared = kSharedPerSm / launch.shared_bytes();
  uint32_t ctas = std::max(1u, std::min({by_warps, by_shared, kMaxCtasPerSm}));
  return std::max<uint64_t>(
      1, uint64_t{multiprocessors(launch.device)} * ctas / volume(launch.cluster));
}

void check_block(const Launch& launch) {
  const ptx::Function& function = *launch.program.function;
  // The product of three numbers of 32 bits: each is compared before they are multiplied.
  uint64_t threads = 1;
  for (uint32_t extent : launch.block) threads = std::min<uint64_t>(threads * extent, UINT32_MAX);
  if (threads == 0 || threads > std::min(kMaxThreads, function.threads_limit)) {
    fault("%s is launched with %u x %u x %u threads in a CTA; at least 1 and at most %u are "
          "allowed",
          function.name.c_str(), launch.block[0], launch.block[1], launch.block[2],
          std::min(kMaxThreads, function.threads_limit));
  }
  uint64_t shared = uint64_t{launch.dynamic_offset()} + launch.dynamic_shared;
  if (shared > kSharedPerCtaOptIn + SharedMemory::kReserved) {
    fault("%s is launched with %llu bytes of shared memory in a CTA; at most %u are allowed",
          function.name.c_str(),
          static_cast<unsigned long long>(shared - SharedMemory::kReserved), kSharedPerCtaOptIn);
  }
}

// Registers and local memory of a cluster that is alive lie in the memory of the host.
void check_memory(const Launch& launch) {
  const uint64_t registers = launch.program.file.size();
  const uint64_t local = launch.program.function->local_bytes * kLanes;
  const uint64_t warps = uint64_t{warps_of(launch)} * volume(launch.cluster);
  const uint64_t bytes = multiply_sizes(add_sizes(registers, local), warps);
  if (bytes <= kMostClusterBytes) return;
  fault("%s is launched with clusters of %llu warps, each of which takes %llu bytes of registers "
        "and %llu of local memory; the emulator allows %llu for a cluster",
        launch.program.function->name.c_str(), static_cast<unsigned long long>(warps),
        static_cast<unsigned long long>(registers), static_cast<unsigned long long>(local),
        static_cast<unsigned long long>(kMostClusterBytes));
}

void check_grid(const Launch& launch, uint64_t instruction_limit) {
  const ptx::Function& function = *launch.program.function;
  uint64_t size = 1;
  for (uint32_t extent : launch.cluster) size = std::min<uint64_t>(size * extent, UINT32_MAX);
  if (size == 0 || size > kMaxClusterSize) {
    fault("%s is launched with clusters of %u x %u x %u CTAs; at least 1 and at most %u are "
          "allowed",
          function.name.c_str(), launch.cluster[0], launch.cluster[1], launch.cluster[2],
          kMaxClusterSize);
  }
  for (std::size_t axis = 0; axis < 3; ++axis) {
    uint32_t most = axis == 0 ? kMaxGridX : kMaxGridYz;
    if (launch.grid[axis] == 0 || launch.grid[axis] > most) {
      fault("%s is launched with %u CTAs along axis %zu; at least 1 and at most %u are allowed",
            function.name.c_str(), launch.grid[axis], axis, most);
    }
    if (launch.grid[axis] % launch.cluster[axis] != 0) {
      fault("%s is launched with %u CTAs along axis %zu, which clusters of %u do not divide",
            function.name.c_str(), launch.grid[axis], axis, launch.cluster[axis]);
    }
  }
  // Every warp executes an instruction at least: what cannot end within the limit need not start.
  uint64_t warps = uint64_t{warps_of(launch)} * launch.grid[0];
  if (uint64_t{launch.grid[1]} * launch.grid[2] > instruction_limit / warps) {
    fault("%s is launched with %u x %u x %u CTAs of %u warps, more warps than the limit of "
          "instructions (%llu) allows",
          function.name.c_str(), launch.grid[0], launch.grid[1], launch.grid[2], warps_of(launch),
          static_cast<unsigned long long>(instruction_limit));
  }
}

void check_cooperative(const Launch& launch, uint64_t clusters) {
  uint64_t most = resident_clusters(launch);
  if (clusters <= most) return;
  fault("the cooperative launch of %s has %llu clusters and the device holds %llu at a time",
        launch.program.function->name.c_str(), static_cast<unsigned long long>(clusters),
        static_cast<unsigned long long>(most));
}

// Clusters that may wait for each other, in one thread.
class Residents {
 public:
  Residents(const GridRun& run, LaunchTotals& totals) : run_(run), totals_(totals) {}

  void run() {
    GridShape shape(run_.launch);
    uint64_t most = resident_clusters(run_.launch);
    ClusterSource source(shape.count());
    while (!source.empty() || !alive_.empty()) {
      // The newest cluster goes first; those before it wait for something that it may bring.
      std::optional<uint64_t> next;
      if (alive_.size() < most) next = source.take();
      if (next) {
        alive_.push_front(std::make_unique<ClusterRun>(run_, *next, shape.id(*next)));
        alive_.front()->cluster().set_source(&source);
      }
      bool ended = run_first();
      check_instructions(run_, executed_);
      if (ended) {
        end_first();
      } else {
        alive_.push_back(std::move(alive_.front()));
        alive_.pop_front();
        // One that can start yet may bring what the others wait for.
        bool may_start = !source.empty() && alive_.size() < most;
        if (!may_start && livelock_.is_due(executed_)) look_for_livelock();
      }
    }
  }

  // What those have done that a fault has ended.
  ~Residents() {
    while (!alive_.empty()) end_first();
  }

 private:
  bool run_first() {
    ClusterRun& cluster = *alive_.front();
    uint64_t before = cluster.cluster().instructions();
    bool ended = cluster.run();
    executed_ += cluster.cluster().instructions() - before;
    return ended;
  }

  void look_for_livelock() {
    std::vector<ClusterRun*> clusters;
    uint64_t before = 0, after = 0;
    for (const auto& cluster : alive_) {
      clusters.push_back(cluster.get());
      before += cluster->cluster().instructions();
    }
    check_livelock(clusters);
    for (const auto& cluster : alive_) after += cluster->cluster().instructions();
    executed_ += after - before;
  }

  void end_first() {
    totals_.add(take_totals(*alive_.front()));
    alive_.pop_front();
  }

  const GridRun& run_;
  LaunchTotals& totals_;
  std::deque<std::unique_ptr<ClusterRun>> alive_;
  LivelockSchedule livelock_{0};
  uint64_t executed_ = 0;  // instructions of all clusters, alive or not
};

}  // namespace

void LaunchTotals::add(LaunchTotals other) {
  instructions += other.instructions;
  if (counters == nullptr) {
    counters = std::move(other.counters);
  } else if (other.counters != nullptr) {
    counters->add(*other.counters);
  }
}

LaunchTotals take_totals(ClusterRun& cluster) {
  return {cluster.cluster().instructions(), cluster.cluster().take_counters()};
}

void check_instructions(const GridRun& run, uint64_t executed) {
  if (executed <= run.instruction_limit) return;
  fault_of(FaultKind::kLimit, "the kernel %s did not end within the limit of instructions (%llu)",
        run.launch.program.function->name.c_str(),
        static_cast<unsigned long long>(run.instruction_limit));
}

void run_grid(const GridRun& run, LaunchTotals& totals) {
  const Launch& launch = run.launch;
  check_block(launch);
  check_grid(launch, run.instruction_limit);
  check_memory(launch);
  GridShape shape(launch);
  if (launch.workspace != 0) check_cooperative(launch, shape.count());
  if (launch.program.couples_clusters || launch.workspace != 0) {
    Residents(run, totals).run();
  } else {
    run_apart(run, shape, totals);
  }
}

}  // namespace warploom::emulator
