// bar and barrier: within a CTA, within a cluster, within a warp.

#include "emulator/exec/machine/cluster.h"

#include <cstddef>
#include <cstdint>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/control/families.h"
#include "emulator/exec/isa/lanes.h"

namespace warploom::emulator {
namespace {

struct Arrival {
  uint32_t barrier;
  bool complete;
};

// s[0]: number, s[1]: threads, if given.
Arrival arrive(Warp& warp, const Op& op, uint32_t active, bool waits) {
  int lane = __builtin_ctz(active);
  Cta& cta = warp.cta();
  uint32_t barrier = warp.lanes<uint32_t>(op.s[0])[lane];
  uint32_t threads = op.s[1].present() ? warp.lanes<uint32_t>(op.s[1])[lane] : 0;
  if (op.s[1].present() && threads == 0)
    fault_of(FaultKind::kBarrier, "barrier %u is used with 0 threads", barrier);
  Arrival arrival{barrier,
                  cta.barriers().arrive(barrier, kLanes, threads, cta.alive_threads())};
  if (Checker* checker = checker_of(warp.cluster())) {
    checker->barrier_arrive(warp, barrier, waits);
    if (arrival.complete) checker->barrier_complete(cta, barrier);
  }
  return arrival;
}

Step barrier_sync(Warp& warp, const Op& op, uint32_t active) {
  Arrival arrival = arrive(warp, op, active, true);
  if (arrival.complete) {
    warp.cta().wake(Wait::kNamedBarrier, arrival.barrier);
    return Step::kNext;
  }
  warp.park({Wait::kNamedBarrier, arrival.barrier});
  return Step::kPark;
}

Step barrier_arrive(Warp& warp, const Op& op, uint32_t active) {
  Arrival arrival = arrive(warp, op, active, false);
  if (arrival.complete) warp.cta().wake(Wait::kNamedBarrier, arrival.barrier);
  return Step::kNext;
}

enum ReduceMode : uint8_t { kPopulation, kAnd, kOr };

// Executed again when the barrier has completed, to read the result.
Step barrier_reduce(Warp& warp, const Op& op, uint32_t active) {
  int lane = __builtin_ctz(active);
  uint32_t barrier = warp.lanes<uint32_t>(op.s[0])[lane];
  NamedBarriers& barriers = warp.cta().barriers();
  if (!warp.barrier_reduced) {
    auto threads = static_cast<uint32_t>(__builtin_popcount(active));
    uint32_t votes = warp.predicate(op.s[2]) & active;
    barriers.contribute(barrier, threads, static_cast<uint32_t>(__builtin_popcount(votes)));
    warp.barrier_reduced = true;
    Arrival arrival = arrive(warp, op, active, true);
    if (!arrival.complete) {
      warp.park({Wait::kNamedBarrier, barrier});
      return Step::kRetry;
    }
    warp.cta().wake(Wait::kNamedBarrier, barrier);
  }
  warp.barrier_reduced = false;
  const NamedBarriers::Reduction& result = barriers.result(barrier);
  if (op.flag == kPopulation) {
    for_each_lane(active, [&](int l) { warp.lanes<uint32_t>(op.d)[l] = result.count; });
  } else {
    bool value = (op.flag == kAnd ? result.all : result.any) != 0;
    warp.set_predicate(op.d, value ? kAllLanes : 0, active);
  }
  return Step::kNext;
}

Step warp_barrier(Warp& warp, const Op&, uint32_t active) {
  if (Checker* checker = checker_of(warp.cluster())) checker->warp_barrier(warp, active);
  return Step::kNext;
}

// op.flag: whether the arrival is relaxed.
Step cluster_arrive(Warp& warp, const Op& op, uint32_t active) {
  if (warp.cluster_arrived & active)
    fault_of(FaultKind::kBarrier, "a thread arrives twice at the cluster barrier");
  warp.cluster_arrived |= active;
  if (Checker* checker = checker_of(warp.cluster())) checker->cluster_arrive(warp, op.flag != 0);
  uint64_t phase = warp.cluster().barrier_phase();
  for_each_lane(active,
                [&](int lane) { warp.cluster_phase[static_cast<std::size_t>(lane)] = phase; });
  warp.cluster().check_barrier();
  return Step::kNext;
}

Step cluster_wait(Warp& warp, const Op&, uint32_t active) {
  uint64_t arrived = warp.cluster_phase[static_cast<std::size_t>(__builtin_ctz(active))];
  if (warp.cluster().barrier_phase() != arrived) {
    if (Checker* checker = checker_of(warp.cluster())) checker->cluster_wait(warp);
    return Step::kNext;
  }
  warp.park({Wait::kClusterBarrier, 0});
  return Step::kRetry;
}

void decode_cluster_barrier(Decoder& decoder) {
  decoder.op.flag = decoder.modifiers.take("relaxed") ? 1 : 0;
  decoder.modifiers.take_all({"release", "acquire", "aligned"});
  int mode = decoder.modifiers.take_one({"arrive", "wait"});
  if (mode < 0) decoder.fail("it needs .arrive or .wait");
  decoder.op.flow = Flow::kSync;
  decoder.op.run = mode == 0 ? cluster_arrive : cluster_wait;
}

void decode_barrier(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  Op& op = decoder.op;
  if (modifiers.take("cluster")) {
    decode_cluster_barrier(decoder);
    return;
  }
  op.flow = Flow::kSync;
  if (modifiers.take("warp")) {
    modifiers.take("sync");
    op.members = decoder.source(decoder.operand(0), Type::kU32);
    op.run = warp_barrier;
    return;
  }
  modifiers.take_all({"cta", "aligned"});

  if (modifiers.take("red")) {
    int mode = modifiers.take_one({"popc", "and", "or"});
    if (mode < 0) decoder.fail("it needs .popc, .and or .or");
    modifiers.take_type();
    op.flag = static_cast<uint8_t>(mode);
    op.d = decoder.destination(decoder.operand(0), mode == kPopulation ? 32 : 1);
    op.s[0] = decoder.source(decoder.operand(1), Type::kU32);
    if (decoder.count() == 4) op.s[1] = decoder.source(decoder.operand(2), Type::kU32);
    op.s[2] = decoder.predicate(decoder.operand(decoder.count() - 1));
    op.run = barrier_reduce;
    return;
  }
  int mode = modifiers.take_one({"sync", "arrive"});
  if (mode < 0) decoder.fail("it needs .sync, .arrive or .red");
  decoder.expect_count(1, 2);
  op.s[0] = decoder.source(decoder.operand(0), Type::kU32);
  if (decoder.count() == 2) op.s[1] = decoder.source(decoder.operand(1), Type::kU32);
  op.run = mode == 0 ? barrier_sync : barrier_arrive;
}

}  // namespace

void add_barrier_ops(DecodeTable& table) {
  table["bar"] = decode_barrier;
  table["barrier"] = decode_barrier;
}

}  // namespace warploom::emulator
