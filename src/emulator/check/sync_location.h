// Synchronisation through memory: who released what at an address, for those who acquire it.
//
// Within a cluster a release hands over what its warp knew. Another cluster learns which releases
// it has acquired, so that it knows what came before them; dimensions mean nothing outside their
// cluster.

#ifndef WARPLOOM_EMULATOR_CHECK_SYNC_LOCATION_H_
#define WARPLOOM_EMULATOR_CHECK_SYNC_LOCATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "emulator/check/clock.h"

namespace warploom::emulator {

// What a warp knew when it released. A later release of the same warp knows all of it.
struct Release {
  uint32_t cluster = 0;
  uint32_t warp = 0;      // in the cluster
  uint64_t sequence = 0;  // of this warp
  std::shared_ptr<const Knowledge> known;
};
using ReleasePtr = std::shared_ptr<const Release>;

// The latest release of each warp that somebody knows of.
class Releases {
 public:
  bool empty() const { return latest_.empty(); }
  void add(const ReleasePtr& release);
  void join(const Releases& other);
  void clear() { latest_.clear(); }

  // Whether one of these releases of the cluster came after the event.
  bool knows(uint32_t cluster, Stamp stamp) const;

  template <class Visit>
  void for_each_of(uint32_t cluster, Visit visit) const {
    auto end = latest_.lower_bound(key(cluster + 1, 0));
    for (auto it = latest_.lower_bound(key(cluster, 0)); it != end; ++it) visit(*it->second);
  }

 private:
  static uint64_t key(uint32_t cluster, uint32_t warp) { return uint64_t{cluster} << 32 | warp; }

  std::map<uint64_t, ReleasePtr> latest_;
};

// The releases that were published at each address.
class SyncLocations {
 public:
  void publish(uint64_t address, const ReleasePtr& own, const Releases& others);

  // Adds what is there to `into`, unless `seen` is its version already; sets `seen`. Returns
  // whether there was anything new.
  bool collect(uint64_t address, uint64_t& seen, Releases& into);

 private:
  struct Location {
    uint64_t version = 0;
    Releases releases;
  };

  std::mutex mutex_;
  std::unordered_map<uint64_t, Location> locations_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_SYNC_LOCATION_H_
