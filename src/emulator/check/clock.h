// Vector clocks of the checker.
//
// A dimension stands for something whose events are ordered by themselves: a warp, or whatever
// announces the completion of asynchronous operations (an mbarrier, the bulk groups of a thread,
// the wgmma groups of a warpgroup). An access is stamped with one dimension and the clock that
// others have to know of it to come after the access.

#ifndef WARPLOOM_EMULATOR_CHECK_CLOCK_H_
#define WARPLOOM_EMULATOR_CHECK_CLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace warploom::emulator {

struct Stamp {
  uint32_t dimension = 0;
  uint32_t clock = 0;  // 0: no event
};

class VectorClock {
 public:
  uint32_t at(uint32_t dimension) const {
    return dimension < clocks_.size() ? clocks_[dimension] : 0;
  }
  bool knows(Stamp stamp) const { return at(stamp.dimension) >= stamp.clock; }

  void raise(Stamp stamp) {
    if (stamp.dimension >= clocks_.size()) clocks_.resize(stamp.dimension + 1);
    clocks_[stamp.dimension] = std::max(clocks_[stamp.dimension], stamp.clock);
  }
  void join(const VectorClock& other) {
    if (other.clocks_.size() > clocks_.size()) clocks_.resize(other.clocks_.size());
    for (std::size_t i = 0; i < other.clocks_.size(); ++i) {
      clocks_[i] = std::max(clocks_[i], other.clocks_[i]);
    }
  }
  // What both know.
  void meet(const VectorClock& other) {
    clocks_.resize(std::min(clocks_.size(), other.clocks_.size()));
    for (std::size_t i = 0; i < clocks_.size(); ++i) {
      clocks_[i] = std::min(clocks_[i], other.clocks_[i]);
    }
  }
  void clear() { clocks_.clear(); }
  std::size_t size() const { return clocks_.size(); }

 private:
  std::vector<uint32_t> clocks_;
};

// What a warp, a barrier or an asynchronous operation knows of the past.
struct Knowledge {
  VectorClock base;
  // The part of it that a proxy fence has made visible to the async proxy.
  VectorClock fenced;
  // mbarrier.init that fence.mbarrier_init has published; these travel over relaxed edges, too.
  VectorClock inits;
  // The part that tcgen05.fence::before_thread_sync has sent along, and the part of this that
  // ::after_thread_sync has put before later tcgen05 instructions of the warp itself.
  VectorClock sent;
  VectorClock tensor;

  // What travels over an edge of synchronisation.
  void join(const Knowledge& other) {
    base.join(other.base);
    fenced.join(other.fenced);
    inits.join(other.inits);
    sent.join(other.sent);
  }
  void meet(const Knowledge& other) {
    base.meet(other.base);
    fenced.meet(other.fenced);
    inits.meet(other.inits);
    sent.meet(other.sent);
    tensor.meet(other.tensor);
  }
  void clear() {
    base.clear();
    fenced.clear();
    inits.clear();
    sent.clear();
    tensor.clear();
  }
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_CLOCK_H_
