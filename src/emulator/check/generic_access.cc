// Accesses of the generic proxy, and what strong ones synchronise.

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using ptx::Space;

enum class Memory : uint8_t { kNone, kShared, kGlobal };

// Local memory and parameters are private; constants are never written.
Memory memory_of(const Warp& warp, Space space, uint64_t& address) {
  if (space == Space::kGeneric) {
    uint64_t window = address & kWindowMask;
    if (window == kLocalWindow) return Memory::kNone;
    if (window != kSharedWindow) {
      space = Space::kGlobal;
    } else {
      space = Space::kShared;
    }
  }
  if (space == Space::kShared) {
    address &= 0xffffffffu;
    return Memory::kShared;
  }
  if (space != Space::kGlobal) return Memory::kNone;
  const Launch& launch = warp.cluster().launch();
  auto parameters = reinterpret_cast<uint64_t>(launch.parameters);
  bool parameter = address - parameters < launch.program.function->parameter_bytes;
  return parameter ? Memory::kNone : Memory::kGlobal;
}

// Neighbouring lanes whose bytes follow one another, or are the same, are one access.
struct Span {
  Memory memory = Memory::kNone;
  uint64_t begin = 0;
  uint64_t end = 0;
  int lane = 0;

  bool extend(Memory next, uint64_t address, uint32_t bytes) {
    if (next != memory || memory == Memory::kNone) return false;
    if (address >= begin && address + bytes <= end) return true;
    if (address != end) return false;
    end += bytes;
    return true;
  }
};

}  // namespace

void Checker::generic(Warp& warp, const Op& op, uint32_t active, Space space, uint32_t bytes,
                      Touch touch, Ordering ordering) {
  if (!ordering.strong()) {
    check_lanes(warp, op, active, space, bytes, touch == Touch::kWrite);
  } else if (ordering.acquires() || ordering.releases() || touch == Touch::kReadWrite) {
    order_lanes(warp);
  }
  Span run;
  Actor actor = actor_of(warp, op, 0, ordering);
  actor.lane_bytes = bytes;
  auto flush = [&] {
    if (run.memory == Memory::kNone) return;
    actor.mark.thread = thread_of(warp, run.lane);
    if (run.memory == Memory::kShared) {
      touch_shared(actor, static_cast<uint32_t>(run.begin),
                   static_cast<uint32_t>(run.end - run.begin), touch);
    } else {
      touch_global(actor, run.begin, run.end - run.begin, touch);
    }
  };
  uint64_t last = 0;
  for (uint32_t left = active; left != 0; left &= left - 1) {
    int lane = __builtin_ctz(left);
    if (ordering.strong()) {
      // Lanes that poll one flag learn the same from it.
      if (left != active && warp.address(op, lane) == last) continue;
      last = warp.address(op, lane);
      generic_lane(warp, op, lane, space, warp.address(op, lane), bytes, touch, ordering);
      continue;
    }
    uint64_t address = warp.address(op, lane);
    Memory memory = memory_of(warp, space, address);
    if (run.extend(memory, address, bytes)) continue;
    flush();
    run = {memory, address, address + bytes, lane};
  }
  flush();
}

void Checker::check_lanes(Warp& warp, const Op& op, uint32_t active, Space space, uint32_t bytes,
                          bool writes) {
  for (uint32_t left = active; left != 0; left &= left - 1) {
    int lane = __builtin_ctz(left);
    uint64_t address = warp.address(op, lane);
    if (memory_of(warp, space, address) != Memory::kShared) continue;
    check_lane(warp, op, lane, static_cast<uint32_t>(address), bytes, writes);
  }
}

// Weak accesses of one lane to shared memory of its CTA.
void Checker::check_lane(Warp& warp, const Op& op, int lane, uint32_t shared, uint32_t bytes,
                         bool writes) {
  const uint32_t rank = warp.cta().rank(), offset = shared_offset(shared);
  // What is out of bounds is a Fault of the access itself.
  if (shared_rank(shared) != rank || offset + bytes > warp.cta().shared().bytes) return;
  const auto number = static_cast<uint32_t>(lane);
  if (writes) {
    lane_races_.write(rank, index_of(warp), number, op_index(op), offset, bytes);
    return;
  }
  LaneRaces::Conflict conflict;
  if (!lane_races_.read(rank, index_of(warp), number, offset, bytes, conflict)) return;
  const Op* first = &program_.ops[conflict.op];
  if (!log_.is_new(Finding::kDataRace, &op, first)) return;
  Access own = mark_of(warp, op), prior = own;
  own.thread = thread_of(warp, lane);
  prior.op = conflict.op & 0xffffff;
  prior.thread = thread_of(warp, static_cast<int>(conflict.lane));
  report(Finding::kDataRace, &op, first,
         format("%s reads %s, which %s writes, and nothing orders the two lanes of one warp. Fix: "
                "bar.warp.sync (__syncwarp) of both lanes between the two; neither convergence nor "
                "shfl.sync orders memory",
                describe(own).c_str(), place_of(shared).c_str(), describe(prior).c_str()));
}

void Checker::matrix_row(Warp& warp, const Op& op, int lane, uint32_t first, bool writes) {
  constexpr uint32_t kWords = 4, kWordBytes = 4;
  const auto shared = static_cast<uint32_t>(warp.address(op, lane));
  if (first == static_cast<uint32_t>(kLanes)) {
    if (!writes) check_lane(warp, op, lane, shared, kWords * kWordBytes, false);
    return;
  }
  for (uint32_t word = 0; word < kWords; ++word) {
    check_lane(warp, op, static_cast<int>(first + word), shared + word * kWordBytes, kWordBytes,
               writes);
  }
}

void Checker::warp_barrier(Warp& warp, uint32_t active) {
  if (active == warp.alive()) {
    order_lanes(warp);
  } else {
    lane_races_.synchronise(index_of(warp), active);
  }
}

void Checker::generic_lane(Warp& warp, const Op& op, int lane, Space space, uint64_t address,
                           uint32_t bytes, Touch touch, Ordering ordering) {
  Memory memory = memory_of(warp, space, address);
  if (memory == Memory::kNone) return;
  bool global = memory == Memory::kGlobal;
  // What is acquired comes before the access, what is released includes it.
  if (ordering.strong() && touch != Touch::kWrite) {
    acquire_at(warp, op, address, global, ordering);
  }
  Actor actor = actor_of(warp, op, lane, ordering);
  if (global) {
    touch_global(actor, address, bytes, touch);
  } else {
    touch_shared(actor, static_cast<uint32_t>(address), bytes, touch);
  }
  if (ordering.strong() && touch != Touch::kRead) {
    release_at(warp, op, address, global, ordering);
  }
}

}  // namespace warploom::emulator
