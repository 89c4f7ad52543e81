#include "emulator/exec/grid.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "emulator/driver/device.h"

namespace warploom::emulator {
namespace {

// Clusters that the device can hold. Registers are not counted: their number is not known here.
uint64_t resident_clusters(const Launch& launch) {
  uint32_t by_threads = kMaxThreadsPerSm / std::max(volume(launch.block), 1u);
  uint32_t by_shared = kSharedPerSm / launch.shared_bytes();
  uint32_t ctas = std::max(1u, std::min({by_threads, by_shared, kMaxCtasPerSm}));
  return std::max<uint64_t>(1, uint64_t{launch.device.multiprocessors} * ctas / volume(launch.cluster));
}

void check(const Launch& launch) {
  const ptx::Function& function = *launch.program.function;
  uint32_t threads = volume(launch.block);
  if (threads == 0 || threads > std::min(kMaxThreads, function.threads_limit)) {
    fault("%s is launched with %u threads in a CTA; at most %u are allowed", function.name.c_str(),
          threads, std::min(kMaxThreads, function.threads_limit));
  }
  if (launch.shared_bytes() > kSharedPerCtaOptIn + SharedMemory::kReserved) {
    fault("%s is launched with %u bytes of shared memory in a CTA; at most %u are allowed",
          function.name.c_str(), launch.shared_bytes() - SharedMemory::kReserved,
          kSharedPerCtaOptIn);
  }
  if (volume(launch.cluster) == 0 || volume(launch.cluster) > kMaxClusterSize) {
    fault("%s is launched with clusters of %u CTAs; at most %u are allowed", function.name.c_str(),
          volume(launch.cluster), kMaxClusterSize);
  }
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (launch.grid[axis] == 0 || launch.grid[axis] % launch.cluster[axis] != 0) {
      fault("%s is launched with %u CTAs along axis %zu, which clusters of %u do not divide",
            function.name.c_str(), launch.grid[axis], axis, launch.cluster[axis]);
    }
  }
}

}  // namespace

void run_grid(Launch& launch) {
  check(launch);
  Dim3 shape{launch.grid[0] / launch.cluster[0], launch.grid[1] / launch.cluster[1],
             launch.grid[2] / launch.cluster[2]};
  uint64_t count = uint64_t{shape[0]} * shape[1] * shape[2];
  uint64_t most = resident_clusters(launch);
  if (launch.workspace != 0 && count > most) {
    fault("the cooperative launch of %s has %llu clusters and the device holds %llu at a time",
          launch.program.function->name.c_str(), static_cast<unsigned long long>(count),
          static_cast<unsigned long long>(most));
  }
  uint64_t next = 0;
  std::deque<std::unique_ptr<Cluster>> resident;
  while (next < count || !resident.empty()) {
    // The newest cluster goes first; those before it wait for something that it may bring.
    if (next < count && resident.size() < most) {
      Dim3 id{static_cast<uint32_t>(next % shape[0]),
              static_cast<uint32_t>(next / shape[0] % shape[1]),
              static_cast<uint32_t>(next / shape[0] / shape[1])};
      resident.push_front(std::make_unique<Cluster>(launch, id));
      ++next;
    }
    std::unique_ptr<Cluster> cluster = std::move(resident.front());
    resident.pop_front();
    if (!cluster->run()) resident.push_back(std::move(cluster));
  }
}

}  // namespace warploom::emulator
