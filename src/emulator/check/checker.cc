#include "emulator/check/checker.h"

#include <algorithm>
#include <utility>

#include "emulator/check/tensor_memory_check.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

// Waits may leave fewer groups than this pending; older ones are known to be done by then.
constexpr std::size_t kMostGroups = 256;

}  // namespace

void Checker::Groups::commit() {
  ends.push_back(sequence++);
  if (ends.size() > kMostGroups) ends.pop_front();
}

uint32_t Checker::Groups::done(uint32_t allowed) const {
  return ends.size() > allowed ? ends[ends.size() - 1 - allowed] : 0;
}

Checker::Checker(Cluster& cluster, LaunchChecks& checks)
    : cluster_(cluster), checks_(checks), program_(cluster.launch().program) {
  const Launch& launch = cluster.launch();
  const Dim3& id = cluster.id();
  id_ = id[0] + launch.grid[0] / launch.cluster[0] *
                    (id[1] + launch.grid[1] / launch.cluster[1] * id[2]);
  uint32_t ctas = volume(launch.cluster);
  warps_per_cta_ = (volume(launch.block) + kLanes - 1) / kLanes;
  warps_.resize(ctas * warps_per_cta_);
  for (WarpState& warp : warps_) {
    warp.dimension = dimensions_++;
    warp.known.base.raise({warp.dimension, 1});
  }
  touched_.resize(ctas);
  named_.resize(ctas);
  warpgroups_.resize(ctas * ((warps_per_cta_ + 3) / 4));
  for (Groups& group : warpgroups_) group.dimension = dimensions_++;
  for (uint32_t rank = 0; rank < ctas; ++rank) {
    shared_.emplace_back(launch.shared_bytes());
    touched_[rank].warps_left = warps_per_cta_;
  }
  grids_over_ = {dimensions_++, 1};
  tensor_memory_ = std::make_unique<TensorMemoryCheck>(*this, ctas, warps_per_cta_);
}

Checker::~Checker() { checks_.reports.add(id_, log_); }

uint32_t Checker::index_of(const Warp& warp) const {
  return warp.cta().rank() * warps_per_cta_ + warp.id();
}

Checker::WarpState& Checker::state(const Warp& warp) { return warps_[index_of(warp)]; }

uint16_t Checker::thread_of(const Warp& warp, int lane) const {
  return static_cast<uint16_t>(index_of(warp) * kLanes + static_cast<uint32_t>(lane));
}

uint32_t Checker::op_index(const Op& op) const {
  return static_cast<uint32_t>(&op - program_.ops.data());
}

Stamp Checker::new_dimension() { return {dimensions_++, 0}; }

// Accesses after a release are not part of it.
void Checker::start_clock(WarpState& state) {
  if (!state.released) return;
  state.released = false;
  state.snapshot = nullptr;
  uint32_t now = state.known.base.at(state.dimension);
  state.known.base.raise({state.dimension, now + 1});
}

Stamp Checker::stamp(Warp& warp) {
  WarpState& own = state(warp);
  start_clock(own);
  return {own.dimension, own.known.base.at(own.dimension)};
}

const Knowledge& Checker::known(const Warp& warp) const { return warps_[index_of(warp)].known; }

const std::shared_ptr<const Knowledge>& Checker::snapshot(WarpState& state) {
  if (state.snapshot == nullptr) state.snapshot = std::make_shared<const Knowledge>(state.known);
  state.released = true;
  return state.snapshot;
}

ReleasePtr Checker::make_release(const Warp& warp, const Op& op) {
  WarpState& own = state(warp);
  auto release = std::make_shared<Release>();
  release->cluster = id_;
  release->warp = index_of(warp);
  release->rank = warp.cta().rank();
  release->op = &op;
  release->sequence = ++own.releases;
  release->known = snapshot(own);
  return release;
}

void Checker::learn(WarpState& state, const Knowledge& known) {
  state.known.join(known);
  state.snapshot = nullptr;
}

void Checker::acquire(Warp& warp, const Knowledge& known) { learn(state(warp), known); }

TicketPtr Checker::ticket_of(Warp& warp, const Op& op, int lane) {
  auto ticket = std::make_shared<Ticket>();
  ticket->known = snapshot(state(warp));
  ticket->thread = thread_of(warp, lane);
  ticket->op = &op;
  return ticket;
}

Checker::Actor Checker::actor_of(Warp& warp, const Op& op, int lane, Ordering ordering) {
  WarpState& own = state(warp);
  start_clock(own);
  Actor actor;
  actor.known = &own.known;
  actor.op = &op;
  actor.rank = warp.cta().rank();
  actor.mark.clock = own.known.base.at(own.dimension);
  actor.mark.dimension = static_cast<uint16_t>(own.dimension);
  actor.mark.cluster = id_;
  actor.mark.op = op_index(op) & 0xffffff;
  actor.mark.thread = thread_of(warp, lane);
  actor.mark.flags = Access::kNeedsFence;
  if (ordering.strong()) actor.mark.flags |= Access::strong_flags(ordering.scope);
  return actor;
}

Access Checker::mark_of(const Ticket& ticket, Stamp stamp) const {
  Access mark;
  mark.clock = std::max(stamp.clock, 1u);
  mark.dimension = static_cast<uint16_t>(stamp.dimension);
  mark.cluster = id_;
  mark.op = op_index(*ticket.op) & 0xffffff;
  mark.thread = ticket.thread;
  mark.flags = ticket.async_proxy ? Access::kAsyncProxy : 0;
  return mark;
}

Checker::Actor Checker::actor_of(const Ticket& ticket, Touch touch) const {
  Actor actor;
  actor.known = ticket.known.get();
  actor.op = ticket.op;
  actor.rank = ticket.thread / kLanes / warps_per_cta_;
  actor.mark = mark_of(ticket, touch == Touch::kRead ? ticket.reads : ticket.writes);
  // Reductions are atomic, for the device.
  if (touch == Touch::kReadWrite) actor.mark.flags |= Access::strong_flags(Scope::kDevice);
  return actor;
}

void Checker::report(Finding finding, const Op* first, const Op* second, const std::string& text) {
  if (!log_.is_new(finding, first, second)) return;
  log_.add({finding, first, second,
                   std::string(finding_name(finding)) + " in kernel " + program_.function->name +
                       ": " + text});
}

void Checker::exit(Warp& warp) {
  uint32_t rank = warp.cta().rank();
  Touched& touched = touched_[rank];
  touched.exited.join(state(warp).known.base);
  touched.exited.join(state(warp).executed);
  if (--touched.warps_left != 0) return;
  for (const Access& access : touched.latest) {
    if (!access.present() || touched.exited.knows(access.stamp())) continue;
    const Op* op = &program_.ops[access.op];
    report(Finding::kEarlyExit, op, nullptr,
           format("the CTA of rank %u in its cluster exits while its shared memory may still be "
                  "accessed by %s: nothing orders that before the exit. Fix: wait for its "
                  "completion (its mbarrier or cp.async.bulk.wait_group) or, if another CTA does "
                  "it, for a barrier.cluster at the end",
                  rank, describe(access).c_str()));
  }
}

void Checker::note_touched(const Access& mark, const Op* op, uint32_t rank) {
  Touched& touched = touched_[rank];
  if (mark.dimension >= touched.latest.size()) touched.latest.resize(dimensions_);
  Access& latest = touched.latest[mark.dimension];
  if (latest.clock <= mark.clock) latest = mark;
  if (touched.warps_left != 0) return;
  report(Finding::kEarlyExit, op, nullptr,
         format("%s accesses shared memory of the CTA of rank %u in its cluster, which has exited. "
                "Fix: the CTA has to wait for it",
                describe(mark).c_str(), rank));
}

}  // namespace warploom::emulator
