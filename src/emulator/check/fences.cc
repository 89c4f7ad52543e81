#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {

// Whether lanes that pass a fence meet before or after it is not known: that counts as order.
void Checker::fence_memory(Warp& warp, const Op& op, const MemoryFence& fence) {
  order_lanes(warp);
  WarpState& own = state(warp);
  if (fence.acquires) {
    if (!own.acquirable.empty()) {
      // A wider fence may still come for what this one does not reach.
      const Reader reader{id_, warp.cta().rank(), fence.scope};
      Releases reached = own.acquirable;
      reached.keep([&](const ReleasePtr& each) { return reader.distance(*each) <= fence.scope; });
      own.acquirable.keep([&](const ReleasePtr& each) {
        const Scope distance = reader.distance(*each);
        if (distance > fence.scope) note_narrow({each, distance, false}, op);
        return distance > fence.scope;
      });
      apply(own, reached);
    }
    learn(own, own.acquirable_known);
    own.acquirable_known.clear();
  }
  if (!fence.releases) return;
  const ReleasePtr release = make_release(warp, op);
  for (std::size_t i = 0; i <= static_cast<std::size_t>(fence.scope); ++i) own.fences[i] = release;
  if (fence.scope == Scope::kDevice) own.fence_others = foreign_;
}

// Later accesses of the warp get a new clock, so that the fence does not cover them.
void Checker::fence_proxy(Warp& warp) {
  WarpState& own = state(warp);
  own.known.fenced.join(own.known.base);
  own.snapshot = nullptr;
  own.released = true;
}

void Checker::fence_inits(Warp& warp) {
  WarpState& own = state(warp);
  own.known.inits.raise({own.dimension, own.known.base.at(own.dimension)});
  own.snapshot = nullptr;
  own.released = true;
}

// Like a proxy fence, it covers nothing that the warp does later.
void Checker::fence_tensor_before(Warp& warp) {
  WarpState& own = state(warp);
  own.known.sent.join(own.known.base);
  own.snapshot = nullptr;
  own.released = true;
}

void Checker::fence_tensor_after(Warp& warp) {
  WarpState& own = state(warp);
  own.known.tensor.join(own.known.sent);
  own.snapshot = nullptr;
}

}  // namespace warploom::emulator
