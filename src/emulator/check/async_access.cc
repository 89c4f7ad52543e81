// Asynchronous operations: what their issuer knew, and what announces that they are over.

#include <algorithm>

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {

TicketPtr Checker::issue(Warp& warp, const Op& op, int lane) { return ticket_of(warp, op, lane); }

TicketPtr Checker::issue_in_bulk_group(Warp& warp, const Op& op, int lane) {
  TicketPtr ticket = ticket_of(warp, op, lane);
  auto& [reads, writes] = bulk_of(warp, lane);
  ticket->reads = {reads.dimension, reads.sequence};
  ticket->writes = {writes.dimension, writes.sequence};
  return ticket;
}

std::pair<Checker::Groups, Checker::Groups>& Checker::bulk_of(Warp& warp, int lane) {
  auto [entry, is_new] = state(warp).bulk.try_emplace(lane);
  if (is_new) {
    entry->second.first.dimension = dimensions_++;
    entry->second.second.dimension = dimensions_++;
  }
  return entry->second;
}

void Checker::commit_bulk_group(Warp& warp, int lane) {
  auto& [reads, writes] = bulk_of(warp, lane);
  reads.commit();
  writes.commit();
}

void Checker::raise(WarpState& own, const Groups& groups, uint32_t allowed) {
  own.known.base.raise({groups.dimension, groups.done(allowed)});
  own.snapshot = nullptr;
}

void Checker::wait_bulk_group(Warp& warp, int lane, uint32_t allowed, bool reads_only) {
  auto& [reads, writes] = bulk_of(warp, lane);
  raise(state(warp), reads, allowed);
  if (!reads_only) raise(state(warp), writes, allowed);
}

Checker::Groups& Checker::copy_async_of(Warp& warp) {
  Groups& groups = state(warp).copy_async;
  if (groups.dimension == 0) groups.dimension = dimensions_++;
  return groups;
}

// cp.async writes through the generic proxy in name, but its completion mechanisms make the data
// visible to wgmma in practice: compilers and libraries put no proxy fence there.
TicketPtr Checker::issue_copy_async(Warp& warp, const Op& op, int lane) {
  TicketPtr ticket = ticket_of(warp, op, lane);
  const Groups& groups = copy_async_of(warp);
  ticket->reads = ticket->writes = {groups.dimension, groups.sequence};
  ticket->async_proxy = false;
  return ticket;
}

void Checker::commit_copy_async(Warp& warp) { copy_async_of(warp).commit(); }

void Checker::wait_copy_async(Warp& warp, uint32_t allowed) {
  raise(state(warp), copy_async_of(warp), allowed);
}

// The open group counts as well.
void Checker::wait_copy_async_all(Warp& warp) {
  Groups& groups = copy_async_of(warp);
  groups.commit();
  raise(state(warp), groups, 0);
}

TicketPtr Checker::copy_async_done(Warp& warp, const Op& op, int lane) {
  Groups& groups = copy_async_of(warp);
  Knowledge known = *snapshot(state(warp));
  known.base.raise({groups.dimension, groups.sequence});
  ++groups.sequence;  // later operations are not covered
  TicketPtr ticket = ticket_of(warp, op, lane);
  ticket->known = std::make_shared<const Knowledge>(std::move(known));
  ticket->reads = ticket->writes = {groups.dimension, groups.sequence - 1};
  ticket->async_proxy = false;
  return ticket;
}

TicketPtr Checker::execute_wgmma(Cta& cta, uint32_t warpgroup, const Op& op) {
  uint32_t first = cta.rank() * warps_per_cta_ + 4 * warpgroup;
  Knowledge known = warps_[first].known;
  for (uint32_t i = 1; i < 4; ++i) known.meet(warps_[first + i].known);
  const Groups& groups = warpgroup_of(*cta.warps()[4 * warpgroup]);
  auto ticket = std::make_shared<Ticket>();
  ticket->known = std::make_shared<const Knowledge>(std::move(known));
  ticket->reads = {groups.dimension, groups.sequence};
  ticket->thread = static_cast<uint16_t>(first * kLanes);
  ticket->op = &op;
  return ticket;
}

Checker::Groups& Checker::warpgroup_of(const Warp& warp) {
  uint32_t per_cta = (warps_per_cta_ + 3) / 4;
  return warpgroups_[warp.cta().rank() * per_cta + warp.id() / 4];
}

// Each of the four warps commits by itself; the group ends with the first of them, since wgmma
// makes the four meet.
void Checker::commit_wgmma(Warp& warp) {
  Groups& groups = warpgroup_of(warp);
  if (++state(warp).wgmma_commits == groups.sequence) groups.commit();
}

void Checker::wait_wgmma(Warp& warp, uint32_t allowed) {
  WarpState& own = state(warp);
  uint32_t done = own.wgmma_commits > allowed ? own.wgmma_commits - allowed : 0;
  own.known.base.raise({warpgroup_of(warp).dimension, done});
  own.snapshot = nullptr;
}

Checker::Groups& Checker::tensor_of(Warp& warp, int lane) {
  auto [entry, is_new] = state(warp).tensor.try_emplace(lane);
  if (is_new) entry->second.dimension = dimensions_++;
  return entry->second;
}

TicketPtr Checker::issue_tcgen05(Warp& warp, const Op& op, int lane) {
  const Stamp issued = stamp(warp);
  TicketPtr ticket = ticket_of(warp, op, lane);
  ticket->issued = issued;
  const Groups& groups = tensor_of(warp, lane);
  ticket->reads = ticket->writes = {groups.dimension, groups.sequence};
  return ticket;
}

TicketPtr Checker::commit_tcgen05(Warp& warp, const Op& op, int lane) {
  Groups& groups = tensor_of(warp, lane);
  TicketPtr ticket = ticket_of(warp, op, lane);
  Knowledge known = *ticket->known;
  known.base.raise({groups.dimension, groups.sequence});
  known.sent.join(known.base);  // commit implies tcgen05.fence::before_thread_sync
  ticket->known = std::make_shared<const Knowledge>(std::move(known));
  ticket->reads = ticket->writes = {groups.dimension, groups.sequence};
  groups.commit();
  return ticket;
}

void Checker::async_shared(const Ticket& ticket, uint32_t address, uint32_t bytes, Touch touch) {
  touch_shared(actor_of(ticket, touch), address, bytes, touch);
}

void Checker::async_global(const Ticket& ticket, uint64_t address, uint64_t bytes, Touch touch) {
  touch_global(actor_of(ticket, touch), address, bytes, touch);
}

}  // namespace warploom::emulator
