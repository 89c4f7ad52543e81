// Synchronisation through memory: who released what at an address, for those who acquire it.
//
// Within a cluster a release hands over what its warp knew. Another cluster learns which releases
// it has acquired, so that it knows what came before them; dimensions mean nothing outside their
// cluster.
//
// A release is for the threads of its scope, an acquire takes from those of its own.

#ifndef WARPLOOM_EMULATOR_CHECK_SYNC_LOCATION_H_
#define WARPLOOM_EMULATOR_CHECK_SYNC_LOCATION_H_

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "emulator/check/clock.h"
#include "emulator/check/ordering.h"

namespace warploom::emulator {

struct Op;

// What a warp knew when it released. A later release of the same warp knows all of it.
struct Release {
  uint32_t cluster = 0;
  uint32_t warp = 0;      // in the cluster
  uint32_t rank = 0;      // of its CTA
  uint64_t sequence = 0;  // of this warp
  std::shared_ptr<const Knowledge> known;
  const Op* op = nullptr;  // the instruction that limits its scope
};
using ReleasePtr = std::shared_ptr<const Release>;

// The latest release of each warp that somebody knows of.
class Releases {
 public:
  bool empty() const { return latest_.empty(); }
  void add(const ReleasePtr& release);
  void join(const Releases& other);
  void clear() { latest_.clear(); }

  // Removes those for which `matches(release)` is false.
  template <class Predicate>
  void keep(Predicate matches) {
    for (auto it = latest_.begin(); it != latest_.end();) {
      it = matches(it->second) ? std::next(it) : latest_.erase(it);
    }
  }

  // Whether one of these releases of the cluster came after the event.
  bool knows(uint32_t cluster, Stamp stamp) const;

  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& entry : latest_) visit(entry.second);
  }

  template <class Visit>
  void for_each_of(uint32_t cluster, Visit visit) const {
    auto end = latest_.lower_bound(key(cluster + 1, 0));
    for (auto it = latest_.lower_bound(key(cluster, 0)); it != end; ++it) visit(*it->second);
  }

 private:
  static uint64_t key(uint32_t cluster, uint32_t warp) { return uint64_t{cluster} << 32 | warp; }

  std::map<uint64_t, ReleasePtr> latest_;
};

// Where a thread is that acquires, and for which scope.
struct Reader {
  uint32_t cluster = 0;
  uint32_t rank = 0;
  Scope scope = Scope::kDevice;

  Scope distance(const Release& release) const {
    if (release.cluster != cluster) return Scope::kDevice;
    return release.rank == rank ? Scope::kCta : Scope::kCluster;
  }
};

// A release that does not order what a reader does, because of a scope.
struct NarrowRelease {
  ReleasePtr release;
  Scope needed = Scope::kDevice;
  bool released_narrowly = true;  // or the reader's scope is too narrow
};

// The releases that were published at each address.
class SyncLocations {
 public:
  // `others`: what the releasing cluster has acquired from other clusters.
  void publish(uint64_t address, Scope scope, const ReleasePtr& own, const Releases& others);

  // Adds what is there for this reader to `into` and the rest to `narrow`, unless `seen` is its
  // version already; sets `seen`. Returns whether there was anything new.
  bool collect(uint64_t address, const Reader& reader, uint64_t& seen, Releases& into,
               std::vector<NarrowRelease>& narrow);

 private:
  struct Location {
    uint64_t version = 0;
    std::array<Releases, kScopes> releases;
  };

  std::mutex mutex_;
  std::unordered_map<uint64_t, Location> locations_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_SYNC_LOCATION_H_
