#include "emulator/check/checker.h"
#include "emulator/exec/cluster.h"

namespace warploom::emulator {

// Whether lanes that pass a fence meet before or after it is not known: that counts as order.
void Checker::fence_memory(Warp& warp) {
  order_lanes(warp);
  WarpState& own = state(warp);
  if (!own.acquirable.empty()) {
    apply(own, own.acquirable);
    own.acquirable.clear();
  }
  learn(own, own.acquirable_known);
  own.acquirable_known.clear();
  own.fence = make_release(warp);
  own.fence_others = foreign_;
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
