// mbarriers as edges of the order: arrivals release, waits acquire; and what is wrong with their
// use.
//
// The default scope of arrivals and waits is .cta, and remote arrivals with it are common practice:
// scopes do not matter here.
//
// The knowledge of a phase includes that of the phases before it: arrivals change one object, one
// after the other.

#include <algorithm>
#include <utility>

#include "emulator/async/mbarrier.h"
#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

constexpr uint32_t kBarrierBytes = 8;
// Instructions that the report of a deadlock names.
constexpr std::size_t kMostSuppliers = 12;

}  // namespace

Checker::Mbarrier* Checker::find_mbarrier(uint32_t address) {
  auto found = mbarriers_.find(address);
  return found == mbarriers_.end() ? nullptr : &found->second;
}

void Checker::mbarrier_init(Warp& warp, const Op& op, int lane, uint32_t address) {
  auto [entry, is_new] = mbarriers_.try_emplace(address);
  Mbarrier& barrier = entry->second;
  if (is_new) barrier.dimension = dimensions_++;
  Actor actor = actor_of(warp, op, lane, Order::kWeak);
  if (barrier.live) {
    const Op* first = &program_.ops[barrier.init.op];
    if (log_.is_new(Finding::kMbarrierMisuse, &op, first)) {
      report(
          Finding::kMbarrierMisuse, &op, first,
          format("%s initialises the mbarrier at %s, which is live since %s. Fix: mbarrier.inval "
                 "between the two, or another address",
                 describe(actor.mark).c_str(), place_of(address).c_str(),
                 describe(barrier.init).c_str()));
    }
  }
  barrier.live = false;  // so that the write below is not one over a live mbarrier
  actor.mark.flags = Access::kBarrier;
  touch_shared(actor, address, kBarrierBytes, Touch::kWrite);
  barrier.live = true;
  barrier.init = actor.mark;
  barrier.pending.clear();
  barrier.completed.clear();
  barrier.joined = nullptr;
  barrier.suppliers.clear();
  barrier.attempts.clear();
}

void Checker::mbarrier_inval(Warp& warp, const Op& op, int lane, uint32_t address) {
  Mbarrier* barrier = find_mbarrier(address);
  if (barrier == nullptr) return;
  Actor actor = actor_of(warp, op, lane, Order::kWeak);
  check_init_order(*barrier, *actor.known, actor.mark, address, "invalidates");
  barrier->live = false;
  // Whoever used the barrier has to be ordered before the memory gets another use; the state that
  // tells is gone, so that this is all that is left of it.
  actor.mark.flags = 0;
  touch_shared(actor, address, kBarrierBytes, Touch::kWrite);
}

// Whoever uses an mbarrier has to come after its initialisation; for the async proxy that has to be
// published by fence.mbarrier_init or by a proxy fence.
void Checker::check_init_order(const Mbarrier& barrier, const Knowledge& known, const Access& mark,
                               uint32_t address, const char* action) {
  if (!barrier.live) return;
  Stamp init = barrier.init.stamp();
  bool async_proxy = (mark.flags & Access::kAsyncProxy) != 0;
  bool ordered = known.base.knows(init) || known.inits.knows(init);
  bool visible = !async_proxy || known.fenced.knows(init) || known.inits.knows(init);
  if (ordered && visible) return;
  const Op* op = &program_.ops[mark.op];
  const Op* first = &program_.ops[barrier.init.op];
  if (!log_.is_new(Finding::kMbarrierInitRace, op, first)) return;
  const char* rule =
      !ordered ? "nothing orders this after the initialisation. Fix: fence.mbarrier_init and a "
                 "barrier of all threads that use it, after the initialisation"
               : "the initialisation was not published to the async proxy. Fix: "
                 "fence.mbarrier_init or fence.proxy.async between the initialisation and the "
                 "barrier";
  report(Finding::kMbarrierInitRace, op, first,
         format("%s %s the mbarrier at %s, which was initialised by %s, and %s",
                describe(mark).c_str(), action, place_of(address).c_str(),
                describe(barrier.init).c_str(), rule));
}

void Checker::supply(Mbarrier& barrier, const Op& op, uint16_t thread) {
  for (Supplier& supplier : barrier.suppliers) {
    if (supplier.op == &op && supplier.thread / kLanes == thread / kLanes) {
      ++supplier.times;
      return;
    }
  }
  if (barrier.suppliers.size() < kMostSuppliers) barrier.suppliers.push_back({&op, thread, 1});
}

void Checker::follow_phase(Mbarrier& barrier, uint64_t before, uint64_t after) {
  if (mbarrier_parity(before) == mbarrier_parity(after)) return;
  ++barrier.phase;
  barrier.completed = barrier.pending;
  barrier.completed.base.raise({barrier.dimension, barrier.phase});
}

void Checker::mbarrier_arrive(Warp& warp, const Op& op, int lane, uint32_t address, uint64_t before,
                              uint64_t after, bool relaxed) {
  Mbarrier* barrier = find_mbarrier(address);
  if (barrier == nullptr) return;
  WarpState& own = state(warp);
  Actor actor = actor_of(warp, op, lane, Order::kRelaxed);
  check_init_order(*barrier, own.known, actor.mark, address, "arrives at");
  if (shared_rank(address) != actor.rank) {
    note_touched(actor.mark, actor.op, shared_rank(address));
  }
  if (relaxed) {
    barrier->pending.inits.join(own.known.inits);
    const ReleasePtr& fence = own.fences[static_cast<std::size_t>(Scope::kCta)];
    if (fence != nullptr) barrier->pending.join(*fence->known);
  } else {
    // Many lanes arrive with one instruction; they know the same.
    const auto& known = snapshot(own);
    if (barrier->joined != known) barrier->pending.join(*known);
    barrier->joined = known;
  }
  supply(*barrier, op, actor.mark.thread);
  follow_phase(*barrier, before, after);
}

void Checker::complete_on(Ticket& ticket, uint32_t address) {
  Mbarrier* barrier = find_mbarrier(address);
  if (barrier == nullptr) return;
  ticket.reads = ticket.writes = {barrier->dimension, barrier->phase + 1};
}

void Checker::mbarrier_signal(const Ticket& ticket, uint32_t address, uint64_t before,
                              uint64_t after) {
  Mbarrier* barrier = find_mbarrier(address);
  if (barrier == nullptr) return;
  Actor actor = actor_of(ticket, Touch::kWrite);
  check_init_order(*barrier, *ticket.known, actor.mark, address, "signals");
  if (shared_rank(address) != actor.rank) {
    note_touched(actor.mark, actor.op, shared_rank(address));
  }
  barrier->pending.join(*ticket.known);
  supply(*barrier, *ticket.op, ticket.thread);
  follow_phase(*barrier, before, after);
}

bool Checker::mbarrier_wait(Warp& warp, const Op& op, int lane, uint32_t address, bool done,
                            bool relaxed) {
  Mbarrier* barrier = find_mbarrier(address);
  if (barrier == nullptr) return false;
  WarpState& own = state(warp);
  uint16_t thread = thread_of(warp, lane);
  auto same = [&](const Attempt& attempt) {
    return attempt.op == &op && attempt.thread == thread;
  };
  auto attempt = std::find_if(barrier->attempts.begin(), barrier->attempts.end(), same);
  Actor actor = actor_of(warp, op, lane, Order::kRelaxed);
  bool first = attempt == barrier->attempts.end() || attempt->phase != barrier->phase;
  if (attempt == barrier->attempts.end()) {
    check_init_order(*barrier, own.known, actor.mark, address, "waits for");
    if (!done) barrier->attempts.push_back({&op, thread, barrier->phase});
  } else {
    uint32_t passed = barrier->phase - attempt->phase;
    if (passed > 1 && log_.is_new(Finding::kMbarrierLapped, &op, nullptr)) {
      report(Finding::kMbarrierLapped, &op, nullptr,
             format("%s waited for a phase of the mbarrier at %s, and %u phases were completed "
                    "before it looked again: it %s. Fix: nobody may complete the next phase before "
                    "all who wait for this one have seen it, for example by waiting for their "
                    "arrival",
                    describe(actor.mark).c_str(), place_of(address).c_str(), passed,
                    done ? "took a later phase for its own"
                         : "waits for a phase that has passed already"));
    }
    if (done) {
      barrier->attempts.erase(attempt);
    } else {
      attempt->phase = barrier->phase;
    }
  }
  if (!done) return first;
  order_lanes(warp);
  if (!relaxed) {
    learn(own, barrier->completed);
  } else {
    // A fence that follows makes the order.
    own.acquirable_known.join(barrier->completed);
  }
  return false;
}

std::string Checker::mbarrier_history(uint32_t address) const {
  auto found = mbarriers_.find(address);
  if (found == mbarriers_.end()) return "";
  const Mbarrier& barrier = found->second;
  std::string result = format("; %s; initialised by %s", place_of(address).c_str(),
                              describe(barrier.init).c_str());
  if (barrier.suppliers.empty()) {
    return result + "; no thread has ever arrived or announced bytes, and no copy has signalled it";
  }
  result += format("; %u phases have completed, supplied by", barrier.phase);
  for (const Supplier& supplier : barrier.suppliers) {
    Access access;
    access.cluster = id_;
    access.op = op_index(*supplier.op) & 0xffffff;
    access.thread = supplier.thread;
    result += format("\n      %s: %llu times,", describe(access).c_str(),
                     static_cast<unsigned long long>(supplier.times));
  }
  result.pop_back();
  return result;
}

}  // namespace warploom::emulator
