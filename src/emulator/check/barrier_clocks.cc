// Barriers of a CTA and of the cluster as edges of the order.

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {

void Checker::barrier_arrive(Warp& warp, uint32_t barrier, bool waits) {
  WarpState& own = state(warp);
  NamedBarrier& named = named_[warp.cta().rank()][barrier];
  named.pending.join(own.known);
  own.released = true;
  if (waits) named.waiters.push_back(&warp);
}

void Checker::barrier_complete(Cta& cta, uint32_t barrier) {
  NamedBarrier& named = named_[cta.rank()][barrier];
  for (Warp* warp : named.waiters) {
    learn(state(*warp), named.pending);
    order_lanes(*warp);
  }
  named.pending.clear();
  named.waiters.clear();
}

// A relaxed arrival releases no more than what a fence before it has published.
void Checker::cluster_arrive(Warp& warp, bool relaxed) {
  WarpState& own = state(warp);
  if (!relaxed) {
    cluster_pending_.join(own.known);
  } else {
    cluster_pending_.inits.join(own.known.inits);
    const ReleasePtr& fence = own.fences[static_cast<std::size_t>(Scope::kCluster)];
    if (fence != nullptr) cluster_pending_.join(*fence->known);
  }
  cluster_arriving_.join(own.known.base);
  own.released = true;
}

void Checker::cluster_complete() {
  cluster_arrived_ = cluster_arriving_;
  cluster_arriving_.clear();
  cluster_completed_ = cluster_pending_;
  cluster_pending_.clear();
}

void Checker::cluster_wait(Warp& warp) {
  learn(state(warp), cluster_completed_);
  order_lanes(warp);
  state(warp).executed.join(cluster_arrived_);
}

}  // namespace warploom::emulator
