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

void SyncLocations::publish(uint64_t address, const ReleasePtr& own, const Releases& others) {
  std::lock_guard<std::mutex> lock(mutex_);
  Location& location = locations_[address];
  location.releases.join(others);
  location.releases.add(own);
  ++location.version;
}

bool SyncLocations::collect(uint64_t address, uint64_t& seen, Releases& into) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = locations_.find(address);
  if (found == locations_.end() || found->second.version == seen) return false;
  seen = found->second.version;
  into.join(found->second.releases);
  return true;
}

}  // namespace warploom::emulator
