// What the checkers of all clusters of a launch share: global memory, synchronisation through it,
// and the reports.

#ifndef WARPLOOM_EMULATOR_CHECK_LAUNCH_CHECKS_H_
#define WARPLOOM_EMULATOR_CHECK_LAUNCH_CHECKS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "emulator/check/clock.h"
#include "emulator/check/report.h"
#include "emulator/check/shadow.h"
#include "emulator/check/sync_location.h"
#include "emulator/memory/memory_footprint.h"

namespace warploom::emulator {

// The shadow of global memory, in pages that come to be when they are touched.
class GlobalShadow {
 public:
  static constexpr uint64_t kPageBytes = 16 << 10;

  struct Page {
    std::mutex mutex;
    Shadow shadow{kPageBytes};
  };

  // The page that holds this address.
  Page& page(uint64_t address);
  // All that has been written, and what has been read since. No cluster runs any more.
  void add_to(MemoryFootprint& footprint) const;

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
};

// Which writes release fences have put before later acquire fences of tensor maps.
class TensorMapReleases {
 public:
  void add(uint32_t cluster, const VectorClock& known);
  bool covers(uint32_t cluster, Stamp write) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, VectorClock> released_;
};

struct LaunchChecks {
  GlobalShadow global;
  SyncLocations locations;
  TensorMapReleases tensor_maps;
  LaunchReports reports;
  // What the launch before has touched, which may not have ended yet; nullptr if it has.
  const MemoryFootprint* before = nullptr;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_LAUNCH_CHECKS_H_
