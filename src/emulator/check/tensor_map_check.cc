// Tensor maps that a kernel changes: writes go through the generic proxy, copies read the map
// through a proxy of its own. Between the two have to be a release fence of the writer and, behind
// it, an acquire fence of this map.

#include <algorithm>

#include "emulator/async/tensor_map.h"
#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

bool same_write(const Access& a, const Access& b) {
  return a.cluster == b.cluster && a.dimension == b.dimension && a.clock == b.clock;
}

}  // namespace

void TensorMapReleases::add(uint32_t cluster, const VectorClock& known) {
  std::lock_guard<std::mutex> lock(mutex_);
  released_[cluster].join(known);
}

bool TensorMapReleases::covers(uint32_t cluster, Stamp write) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = released_.find(cluster);
  return entry != released_.end() && entry->second.knows(write);
}

// Later writes of the warp get a new clock, so that the fence does not cover them.
void Checker::release_tensor_maps(Warp& warp) {
  WarpState& own = state(warp);
  checks_.tensor_maps.add(id_, own.known.base);
  own.released = true;
}

std::vector<Access> Checker::writes_of(uint64_t address, uint32_t bytes) {
  std::vector<Access> writes;
  auto note = [&](Cell& cell, uint32_t, uint32_t) {
    const Access& write = cell.write;
    if (!write.present()) return;
    bool known = std::any_of(writes.begin(), writes.end(),
                             [&](const Access& other) { return same_write(write, other); });
    if (!known) writes.push_back(write);
  };
  while (bytes != 0) {
    GlobalShadow::Page& page = checks_.global.page(address);
    const auto offset = static_cast<uint32_t>(address % GlobalShadow::kPageBytes);
    const uint32_t count = std::min<uint32_t>(bytes, GlobalShadow::kPageBytes - offset);
    std::lock_guard<std::mutex> lock(page.mutex);
    page.shadow.visit(offset, count, note);
    address += count;
    bytes -= count;
  }
  return writes;
}

void Checker::acquire_tensor_map(Warp& warp, const Op& op, int lane, uint64_t address) {
  const Actor actor = actor_of(warp, op, lane, Order::kWeak);
  const Stamp fence = stamp(warp);
  std::vector<AcquiredMap>& acquired = acquired_maps_[address];
  for (const Access& write : writes_of(address, kTensorMapBytes)) {
    if (!comes_before(write, actor)) continue;
    if (!checks_.tensor_maps.covers(write.cluster, write.stamp())) continue;
    acquired.push_back({write, fence});
  }
}

void Checker::use_tensor_map(Warp& warp, const Op& op, int lane, uint64_t address) {
  const std::vector<Access> writes = writes_of(address, kTensorMapBytes);
  if (writes.empty()) return;
  generic_lane(warp, op, lane, ptx::Space::kGlobal, address, kTensorMapBytes, Touch::kRead);
  const Actor actor = actor_of(warp, op, lane, Order::kWeak);
  const std::vector<AcquiredMap>& acquired = acquired_maps_[address];
  for (const Access& write : writes) {
    if (!comes_before(write, actor)) continue;  // a race, reported above
    bool fenced = std::any_of(acquired.begin(), acquired.end(), [&](const AcquiredMap& map) {
      return same_write(map.write, write) && actor.known->base.knows(map.fence);
    });
    if (fenced) continue;
    const Op* writer = &program_.ops[write.op];
    if (!log_.is_new(Finding::kMissingTensorMapFence, &op, writer)) continue;
    report(Finding::kMissingTensorMapFence, &op, writer,
           format("%s uses the tensor map at %s, which %s wrote in this launch, without a "
                  "fence.proxy.tensormap between them. Fix: fence.proxy.tensormap::generic.release "
                  "(or tensormap.cp_fenceproxy) after the write, and "
                  "fence.proxy.tensormap::generic.acquire of this map before it is used",
                  describe(actor.mark).c_str(), global_place_of(address).c_str(),
                  describe(write).c_str()));
  }
}

}  // namespace warploom::emulator
