#include "emulator/check/tensor_memory_check.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

const char* verb(TensorActor actor, bool writes) {
  if (actor == TensorActor::kAllocator) return "allocates or frees";
  return writes ? "writes" : "reads";
}

// What is not faults when it is executed.
bool is_in_bounds(uint32_t lane, uint32_t column, uint32_t columns) {
  return lane < kTensorLanes && columns <= kTensorColumns && column <= kTensorColumns - columns;
}

uint32_t warp_of(const Access& access) { return access.thread / kLanes; }

}  // namespace

TensorMemoryCheck::TensorMemoryCheck(Checker& checker, uint32_t ctas, uint32_t warps_per_cta)
    : checker_(checker),
      marks_(1),
      states_(1),
      cells_(ctas),
      transfers_(std::size_t{ctas} * warps_per_cta),
      warps_per_cta_(warps_per_cta) {}

TensorMemoryCheck::Transfers& TensorMemoryCheck::transfers_of(const Warp& warp) {
  Transfers& result = transfers_[warp.cta().rank() * warps_per_cta_ + warp.id()];
  if (result.loads.clock == 0) {
    result.loads = checker_.new_dimension();
    result.stores = checker_.new_dimension();
    result.loads.clock = result.stores.clock = 1;
  }
  return result;
}

// Everything up to here is over, and the warp knows it.
void TensorMemoryCheck::wait(Warp& warp, Stamp& transfers) {
  Knowledge known;
  known.base.raise(transfers);
  checker_.acquire(warp, known);
  ++transfers.clock;
}

uint32_t TensorMemoryCheck::new_mark(const TicketPtr& ticket, TensorActor actor, Stamp done) {
  marks_.push_back({checker_.mark_of(*ticket, done), ticket->issued, done, actor});
  return static_cast<uint32_t>(marks_.size() - 1);
}

uint32_t TensorMemoryCheck::new_state(State state) {
  states_.push_back(std::move(state));
  return static_cast<uint32_t>(states_.size() - 1);
}

TicketPtr TensorMemoryCheck::ticket_of(Warp& warp, const Op& op) {
  const Stamp issued = checker_.stamp(warp);
  TicketPtr ticket = checker_.release(warp, op, 0);
  ticket->issued = issued;
  return ticket;
}

TensorMemoryCheck::Accessor TensorMemoryCheck::transfer(Warp& warp, const Op& op,
                                                        TensorActor actor, Stamp done) {
  TicketPtr ticket = ticket_of(warp, op);
  const uint32_t mark = new_mark(ticket, actor, done);
  return {*this, std::move(ticket), mark};
}

TensorMemoryCheck::Accessor TensorMemoryCheck::load(Warp& warp, const Op& op) {
  return transfer(warp, op, TensorActor::kLoad, transfers_of(warp).loads);
}

TensorMemoryCheck::Accessor TensorMemoryCheck::store(Warp& warp, const Op& op) {
  return transfer(warp, op, TensorActor::kStore, transfers_of(warp).stores);
}

TensorMemoryCheck::Accessor TensorMemoryCheck::execute(const TicketPtr& ticket) {
  return {*this, ticket, new_mark(ticket, TensorActor::kPipeline, ticket->writes)};
}

uint32_t* TensorMemoryCheck::cells(uint32_t rank, uint32_t lane, uint32_t column) {
  std::vector<uint32_t>& all = cells_[rank];
  if (all.empty()) all.resize(std::size_t{kTensorLanes} * kTensorColumns);
  return &all[std::size_t{lane} * kTensorColumns + column];
}

void TensorMemoryCheck::allocate(Warp& warp, const Op& op, uint32_t column, uint32_t columns) {
  const TicketPtr ticket = ticket_of(warp, op);
  const uint32_t mark = new_mark(ticket, TensorActor::kAllocator, ticket->issued);
  const uint32_t state = new_state({mark, false, {}});
  for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
    std::fill_n(cells(warp.cta().rank(), lane, column), columns, state);
  }
}

void TensorMemoryCheck::free(Warp& warp, const Op& op, uint32_t column, uint32_t columns) {
  const TicketPtr ticket = ticket_of(warp, op);
  Accessor accessor(*this, ticket, new_mark(ticket, TensorActor::kAllocator, ticket->issued));
  for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
    accessor.write(warp.cta().rank(), lane, column, columns);
  }
}

void TensorMemoryCheck::Accessor::read(uint32_t rank, uint32_t lane, uint32_t column,
                                       uint32_t columns) {
  if (!is_in_bounds(lane, column, columns)) return;
  uint32_t* cells = check_.cells(rank, lane, column);
  for (uint32_t i = 0; i < columns; ++i) {
    if (cells[i] != read_.from) {
      read_.from = cells[i];
      read_.to = check_.after_read(cells[i], *this, {rank, lane, column + i});
    }
    cells[i] = read_.to;
  }
}

void TensorMemoryCheck::Accessor::write(uint32_t rank, uint32_t lane, uint32_t column,
                                        uint32_t columns) {
  if (!is_in_bounds(lane, column, columns)) return;
  uint32_t* cells = check_.cells(rank, lane, column);
  for (uint32_t i = 0; i < columns; ++i) {
    if (cells[i] != write_.from) {
      write_.from = cells[i];
      write_.to = check_.after_write(cells[i], *this, {rank, lane, column + i});
    }
    cells[i] = write_.to;
  }
}

uint32_t TensorMemoryCheck::after_read(uint32_t from, const Accessor& accessor,
                                       const Place& place) {
  State next = states_[from];
  check_order(next.written_by, true, accessor, false, place);
  if (!next.initialized) report_uninitialized(next.written_by, accessor, place);
  std::vector<uint32_t>& reads = next.read_by;
  if (std::find(reads.begin(), reads.end(), accessor.mark_) != reads.end()) return from;
  // Who comes after this read comes after those that it knows, too.
  const VectorClock& known = accessor.ticket_->known->base;
  reads.erase(std::remove_if(reads.begin(), reads.end(),
                             [&](uint32_t mark) { return known.knows(marks_[mark].done); }),
              reads.end());
  reads.push_back(accessor.mark_);
  return new_state(std::move(next));
}

uint32_t TensorMemoryCheck::after_write(uint32_t from, Accessor& accessor, const Place& place) {
  const State& prior = states_[from];
  check_order(prior.written_by, true, accessor, true, place);
  for (uint32_t read : prior.read_by) check_order(read, false, accessor, true, place);
  if (accessor.written_ == 0) accessor.written_ = new_state({accessor.mark_, true, {}});
  return accessor.written_;
}

void TensorMemoryCheck::check_order(uint32_t prior_mark, bool prior_writes,
                                    const Accessor& accessor, bool writes, const Place& place) {
  // Mark 0 stands for no access. Whoever uses columns that were never allocated gets a Fault.
  if (prior_mark == 0 || prior_mark == accessor.mark_) return;
  const Mark& prior = marks_[prior_mark];
  const Mark& own = marks_[accessor.mark_];
  const char* missing = what_is_missing(prior, own, *accessor.ticket_->known);
  if (missing == nullptr) return;
  checker_.report(Finding::kTensorMemory, checker_.op_of(prior.access), accessor.ticket_->op,
                  format("%s %s lane %u, column %u of the tensor memory of the CTA of rank %u, "
                         "which %s %s: %s",
                         checker_.describe(own.access).c_str(), verb(own.actor, writes), place.lane,
                         place.column, place.rank, checker_.describe(prior.access).c_str(),
                         verb(prior.actor, prior_writes), missing));
}

void TensorMemoryCheck::report_uninitialized(uint32_t allocated_by, const Accessor& accessor,
                                             const Place& place) {
  if (allocated_by == 0) return;
  checker_.report(Finding::kUninitializedRead, accessor.ticket_->op, nullptr,
                  format("%s reads lane %u, column %u of the tensor memory of the CTA of rank %u, "
                         "which nothing has written since %s",
                         checker_.describe(marks_[accessor.mark_].access).c_str(), place.lane,
                         place.column, place.rank,
                         checker_.describe(marks_[allocated_by].access).c_str()));
}

const char* TensorMemoryCheck::what_is_missing(const Mark& prior, const Mark& own,
                                               const Knowledge& known) {
  const bool same_warp = warp_of(prior.access) == warp_of(own.access);
  const bool issued = same_warp || known.base.knows(prior.issued);
  const bool done = known.base.knows(prior.done);
  const bool pipelined =
      prior.actor == TensorActor::kPipeline && own.actor == TensorActor::kPipeline;
  if (!done && !(pipelined && issued)) {
    if (!issued) return "nothing orders the two";
    switch (prior.actor) {
      case TensorActor::kLoad: return "tcgen05.wait::ld is missing after the earlier one";
      case TensorActor::kStore: return "tcgen05.wait::st is missing after the earlier one";
      default:
        return "nothing has waited for the completion of the earlier one, by a tcgen05.commit "
               "behind it and its mbarrier";
    }
  }
  const bool allocates =
      prior.actor == TensorActor::kAllocator || own.actor == TensorActor::kAllocator;
  const Stamp& through = done ? prior.done : prior.issued;
  if (same_warp || allocates || known.tensor.knows(through)) return nullptr;
  return known.sent.knows(through)
             ? "tcgen05.fence::after_thread_sync is missing before this one, after its thread has "
               "synchronised with the other"
             : "tcgen05.fence::before_thread_sync is missing after the earlier one, before its "
               "thread synchronises with this one";
}

}  // namespace warploom::emulator
