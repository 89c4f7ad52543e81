#include "emulator/check/sync_location.h"

namespace warploom::emulator {

void Releases::add(const ReleasePtr& release) {
  ReleasePtr& place = latest_[key(release->cluster, release->warp)];
  if (place == nullptr || place->sequence < release->sequence) place = release;
}

void Releases::join(const Releases& other) {
  for (const auto& entry : other.latest_) add(entry.second);
}

bool Releases::knows(uint32_t cluster, Stamp stamp) const {
  bool found = false;
  for_each_of(cluster, [&](const Release& release) { found |= release.known->base.knows(stamp); });
  return found;
}

// All of a cluster knows what one of its warps has acquired from others: a release for less than
// the device need not hand that on.
void SyncLocations::publish(uint64_t address, Scope scope, const ReleasePtr& own,
                            const Releases& others) {
  std::lock_guard<std::mutex> lock(mutex_);
  Location& location = locations_[address];
  Releases& releases = location.releases[static_cast<std::size_t>(scope)];
  if (scope == Scope::kDevice) releases.join(others);
  releases.add(own);
  ++location.version;
}

bool SyncLocations::collect(uint64_t address, const Reader& reader, uint64_t& seen, Releases& into,
                            std::vector<NarrowRelease>& narrow) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = locations_.find(address);
  if (found == locations_.end() || found->second.version == seen) return false;
  seen = found->second.version;
  for (std::size_t i = 0; i < kScopes; ++i) {
    const auto scope = static_cast<Scope>(i);
    found->second.releases[i].for_each([&](const ReleasePtr& release) {
      const Scope distance = reader.distance(*release);
      if (distance <= scope && distance <= reader.scope) {
        into.add(release);
      } else {
        narrow.push_back({release, distance, distance > scope});
      }
    });
  }
  return true;
}

}  // namespace warploom::emulator
