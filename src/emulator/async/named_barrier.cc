#include "emulator/async/named_barrier.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

std::string threads_text(uint32_t expected) {
  return expected == 0 ? "all threads of the CTA" : format("%u threads", expected);
}

}  // namespace

bool NamedBarriers::arrive(uint32_t barrier, uint32_t threads, uint32_t expected, uint32_t alive) {
  if (barrier >= kCount)
    fault_of(FaultKind::kBarrier, "barrier %u does not exist; a CTA has %u", barrier, kCount);
  if (expected % 32 != 0) {
    fault_of(FaultKind::kBarrier, "barrier %u expects %u threads, not whole warps", barrier,
             expected);
  }
  State& state = states_[barrier];
  if (state.arrived != 0 && state.expected != expected) {
    fault_of(FaultKind::kBarrier, "barrier %u is used with %s and with %s at the same time",
             barrier, threads_text(state.expected).c_str(), threads_text(expected).c_str());
  }
  state.expected = expected;
  state.arrived += threads;
  uint32_t needed = expected != 0 ? expected : alive;
  if (state.arrived > needed) {
    fault_of(FaultKind::kBarrier, "barrier %u got %u threads and expects %u", barrier,
             state.arrived, needed);
  }
  if (state.arrived < needed) return false;
  complete(barrier);
  return true;
}

uint32_t NamedBarriers::completed_by_exit(uint32_t alive) {
  for (uint32_t barrier = 0; barrier < kCount; ++barrier) {
    const State& state = states_[barrier];
    if (state.arrived != 0 && state.expected == 0 && state.arrived >= alive) {
      complete(barrier);
      return barrier;
    }
  }
  return kCount;
}

void NamedBarriers::contribute(uint32_t barrier, uint32_t threads, uint32_t true_threads) {
  if (barrier >= kCount)
    fault_of(FaultKind::kBarrier, "barrier %u does not exist; a CTA has %u", barrier, kCount);
  Reduction& open = open_[barrier];
  open.any |= true_threads != 0 ? 1u : 0u;
  open.all &= true_threads == threads ? 1u : 0u;
  open.count += true_threads;
}

void NamedBarriers::complete(uint32_t barrier) {
  states_[barrier] = State{};
  results_[barrier] = open_[barrier];
  open_[barrier] = Reduction{};
}

std::string NamedBarriers::describe(uint32_t barrier) const {
  const State& state = states_[barrier];
  std::string expected =
      state.expected != 0 ? format("%u threads", state.expected) : "all threads that are alive";
  return format("%u threads have arrived, it expects %s", state.arrived, expected.c_str());
}

}  // namespace warploom::emulator
