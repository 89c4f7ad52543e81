// The rules for two accesses of one byte, and for the first read of a byte.

#include <algorithm>
#include <cinttypes>

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/global_place.h"
#include "emulator/exec/machine/describe_op.h"

namespace warploom::emulator {
namespace {

// Reads that are remembered of a cell beyond the first. More of them would only show the same
// missing order again.
constexpr std::size_t kMostSharedReads = 24;
constexpr std::size_t kMostGlobalReads = 3;

bool same_event(const Access& a, const Access& b) {
  return a.clock == b.clock && a.dimension == b.dimension && a.cluster == b.cluster &&
         a.flags == b.flags;
}

}  // namespace

// Whether the access is over for whoever knows what the actor knows.
bool Checker::comes_before(const Access& prior, const Actor& actor) const {
  if (prior.cluster == id_) return actor.known->base.knows(prior.stamp());
  return foreign_.knows(prior.cluster, prior.stamp());
}

void Checker::check_prior(const Access& prior, bool prior_writes, const Actor& actor, bool writes,
                          const Where& where) {
  if (both_strong(prior, actor.mark)) return;
  if (!comes_before(prior, actor)) {
    report_conflict(Finding::kDataRace, prior, prior_writes, actor, writes, where);
    return;
  }
  // Order is enough for a read that came before; a write has to be visible to the other proxy.
  bool needs_fence = prior_writes && (prior.flags & Access::kNeedsFence) &&
                     (actor.mark.flags & Access::kAsyncProxy) && prior.cluster == id_;
  if (needs_fence && !actor.known->fenced.knows(prior.stamp())) {
    report_conflict(Finding::kMissingProxyFence, prior, true, actor, writes, where);
  }
}

void Checker::check_read(Shadow& shadow, Cell& cell, const Actor& actor, const Where& where) {
  if (same_event(cell.read, actor.mark)) return;
  if (cell.write.present()) {
    check_prior(cell.write, true, actor, false, where);
    check_constant(actor.mark, cell.write, true, where);
  } else if (where.shared) {
    report_uninitialized(shadow, actor, where);
  }
  auto over = [&](const Access& read) {
    return read.cluster == id_ && actor.known->base.knows(read.stamp());
  };
  if (!cell.read.present() || over(cell.read)) {
    cell.read = actor.mark;
    return;
  }
  if (cell.more == 0) cell.more = shadow.reads().take();
  auto& more = shadow.reads().at(cell.more);
  auto place = std::find_if(more.begin(), more.end(), [&](const Access& read) {
    return same_event(read, actor.mark) || over(read);
  });
  if (place != more.end()) {
    *place = actor.mark;
  } else if (more.size() < (where.shared ? kMostSharedReads : kMostGlobalReads)) {
    more.push_back(actor.mark);
  }
}

void Checker::check_write(Shadow& shadow, Cell& cell, const Actor& actor, const Where& where) {
  bool async_proxy = (actor.mark.flags & Access::kAsyncProxy) != 0;
  if (!async_proxy && !cell.read.present() && same_event(cell.write, actor.mark)) return;
  if ((cell.write.flags & Access::kBarrier) && where.shared) report_on_barrier(actor, true, where);
  if (cell.write.present()) check_prior(cell.write, true, actor, true, where);
  if (cell.read.present()) {
    check_prior(cell.read, false, actor, true, where);
    check_constant(cell.read, actor.mark, false, where);
    if (cell.more != 0) {
      for (const Access& read : shadow.reads().at(cell.more)) {
        check_prior(read, false, actor, true, where);
      }
    }
    shadow.clear_reads(cell);
  }
  cell.write = actor.mark;
}

void Checker::touch_shared(const Actor& actor, uint32_t address, uint32_t bytes, Touch touch) {
  uint32_t rank = shared_rank(address), offset = shared_offset(address);
  // What is out of bounds is a Fault of the access itself.
  if (rank >= shared_.size()) return;
  Shadow& shadow = shared_[rank];
  if (bytes == 0 || offset >= shadow.bytes() || bytes > shadow.bytes() - offset) return;
  if (rank != actor.rank || (actor.mark.flags & Access::kAsyncProxy)) {
    note_touched(actor.mark, actor.op, rank);
  }
  if (rank != actor.rank && !(actor.mark.flags & Access::kAsyncProxy)) {
    check_started(actor, address);
  }
  auto where = [&](uint32_t begin, uint32_t end) {
    return Where{true, shared_address(rank, begin), end - begin};
  };
  if (touch == Touch::kRead) {
    shadow.visit(offset, bytes, [&](Cell& cell, uint32_t begin, uint32_t end) {
      check_read(shadow, cell, actor, where(begin, end));
    });
    return;
  }
  shadow.visit_write(offset, bytes, [&](Cell& cell, uint32_t begin, uint32_t end) {
    if (touch == Touch::kReadWrite && !cell.write.present()) {
      report_uninitialized(shadow, actor, where(begin, end));
    }
    check_write(shadow, cell, actor, where(begin, end));
  });
}

void Checker::touch_global(const Actor& actor, uint64_t address, uint64_t bytes, Touch touch) {
  check_grids(actor, address, bytes, touch);
  while (bytes != 0) {
    GlobalShadow::Page& page = checks_.global.page(address);
    uint64_t base = address / GlobalShadow::kPageBytes * GlobalShadow::kPageBytes;
    auto offset = static_cast<uint32_t>(address - base);
    auto count = static_cast<uint32_t>(
        std::min<uint64_t>(bytes, GlobalShadow::kPageBytes - offset));
    std::lock_guard<std::mutex> lock(page.mutex);
    auto where = [&](uint32_t begin, uint32_t end) {
      return Where{false, base + begin, end - begin};
    };
    if (touch == Touch::kRead) {
      page.shadow.visit(offset, count, [&](Cell& cell, uint32_t begin, uint32_t end) {
        check_read(page.shadow, cell, actor, where(begin, end));
      });
    } else {
      page.shadow.visit_write(offset, count, [&](Cell& cell, uint32_t begin, uint32_t end) {
        check_write(page.shadow, cell, actor, where(begin, end));
      });
    }
    address += count;
    bytes -= count;
  }
}

namespace {

const char* verb(bool writes) { return writes ? "writes" : "reads"; }

// `pending`: the asynchronous operation had been issued when the other access came.
const char* advice(bool prior_writes, bool pending, bool writes) {
  if (pending) {
    return "the asynchronous operation may still be going on: wait for its completion (the "
           "mbarrier "
           "that it signals, wgmma.wait_group, cp.async.wait_group or cp.async.bulk.wait_group) "
           "before the other access";
  }
  if (writes && prior_writes) {
    return "order them with a barrier, an mbarrier arrival and wait, or release and acquire. Weak "
           "stores race even if they write the same value: a flag that several threads may set "
           "takes atomic or relaxed stores (st.relaxed, atom; volatile in CUDA)";
  }
  if (writes && !prior_writes) {
    return "the memory may still be read: let the readers arrive at an mbarrier or another barrier "
           "when they are done, and wait for it before it is written again";
  }
  return "order them with a barrier, an mbarrier arrival and wait, or release and acquire";
}

}  // namespace

// Whether one of two accesses without order belongs to an asynchronous operation that the thread of
// the other knew to have been issued.
bool Checker::is_pending(const Access& prior, const Actor& actor) const {
  if (prior.cluster != id_) return false;
  const WarpState& warp = warps_[prior.thread / kLanes];
  if (prior.dimension != warp.dimension) return true;
  const WarpState& issuer = warps_[actor.mark.thread / kLanes];
  if (actor.mark.dimension == issuer.dimension) return false;
  uint32_t issued = actor.known->base.at(issuer.dimension);
  return warp.known.base.at(issuer.dimension) >= issued;
}

void Checker::report_conflict(Finding finding, const Access& prior, bool prior_writes,
                              const Actor& actor, bool writes, const Where& where) {
  const Op* first = &program_.ops[prior.op];
  if (!log_.is_new(finding, actor.op, first)) return;
  std::string place = where.shared ? place_of(static_cast<uint32_t>(where.address))
                                   : global_place_of(where.address);
  std::string text;
  if (finding == Finding::kMissingProxyFence) {
    text = format("%s %s %s through the async proxy; %s wrote it through the generic proxy, and no "
                  "fence.proxy.async lies between them. Fix: fence.proxy.async after the write and "
                  "before the barrier that orders the two",
                  describe(actor.mark).c_str(), verb(writes), place.c_str(),
                  describe(prior).c_str());
  } else {
    const std::string scopes = scope_problem(prior, actor);
    const std::string why =
        !scopes.empty() ? scopes
                        : format("nothing orders the two. Fix: %s",
                                 advice(prior_writes, is_pending(prior, actor), writes));
    text = format("%s %s %s, which %s %s, and %s", describe(actor.mark).c_str(), verb(writes),
                  place.c_str(), describe(prior).c_str(), verb(prior_writes), why.c_str());
  }
  report(finding, actor.op, first, text);
}

// Compilers widen a load to the vector around what the program reads, and do not use the rest: a
// lane has to read nothing but bytes that nobody wrote.
bool Checker::reads_nothing_written(Shadow& shadow, const Actor& actor, const Where& where) {
  const uint32_t bytes = actor.lane_bytes;
  if (bytes <= where.bytes) return true;
  const uint32_t begin = shared_offset(static_cast<uint32_t>(where.address)) / bytes * bytes;
  if (begin + bytes > shadow.bytes()) return true;  // a misaligned access, which is a Fault
  bool written = false;
  shadow.visit(begin, bytes,
               [&](Cell& cell, uint32_t, uint32_t) { written |= cell.write.present(); });
  return !written;
}

void Checker::report_uninitialized(Shadow& shadow, const Actor& actor, const Where& where) {
  if (!log_.is_new(Finding::kUninitializedRead, actor.op, nullptr)) return;
  if (!reads_nothing_written(shadow, actor, where)) return;
  report(
      Finding::kUninitializedRead, actor.op, nullptr,
      format("%s reads %s, which nothing has written in this launch. Fix: write it, or wait for "
             "the operation that does, before it is read",
             describe(actor.mark).c_str(), place_of(static_cast<uint32_t>(where.address)).c_str()));
}

void Checker::report_on_barrier(const Actor& actor, bool writes, const Where& where) {
  auto address = static_cast<uint32_t>(where.address) & ~7u;
  const Mbarrier* barrier = find_mbarrier(address);
  if (barrier == nullptr || !barrier->live) return;
  if (!log_.is_new(Finding::kMbarrierMisuse, actor.op, nullptr)) return;
  report(Finding::kMbarrierMisuse, actor.op, nullptr,
         format("%s %s %s, where a live mbarrier lies (initialised by %s). Fix: mbarrier.inval "
                "before the memory gets another use, or another address",
                describe(actor.mark).c_str(), verb(writes), place_of(address).c_str(),
                describe(barrier->init).c_str()));
}

// "PTX line 12 (kernel.cu:7): cp.async.bulk... of CTA (0, 0, 0) warp 1 lane 0".
std::string Checker::describe(const Access& access) const {
  const Launch& launch = cluster_.launch();
  const Dim3& shape = launch.cluster;
  uint32_t warp = access.thread / kLanes;
  uint32_t rank = warp / warps_per_cta_;
  uint32_t clusters_x = launch.grid[0] / shape[0], clusters_y = launch.grid[1] / shape[1];
  uint32_t x = access.cluster % clusters_x, y = access.cluster / clusters_x % clusters_y;
  uint32_t z = access.cluster / clusters_x / clusters_y;
  return format("%s of CTA (%u, %u, %u) warp %u lane %u",
                describe_op(program_, program_.ops[access.op]).c_str(),
                x * shape[0] + rank % shape[0], y * shape[1] + rank / shape[0] % shape[1],
                z * shape[2] + rank / shape[0] / shape[1], warp % warps_per_cta_,
                access.thread % kLanes);
}

// "shared 0x1440 (tile + 0x40) of rank 1".
std::string Checker::place_of(uint32_t shared) const {
  uint32_t offset = shared_offset(shared);
  const ptx::Variable* best = nullptr;
  uint32_t best_offset = 0;
  for (const Special& special : program_.specials) {
    const ptx::Variable* variable = special.variable;
    if (variable == nullptr || variable->space != ptx::Space::kShared) continue;
    uint32_t begin = variable->is_dynamic()
                         ? cluster_.launch().dynamic_offset()
                         : static_cast<uint32_t>(variable->offset) + SharedMemory::kReserved;
    if (begin <= offset && (best == nullptr || begin > best_offset)) {
      best = variable;
      best_offset = begin;
    }
  }
  std::string name =
      best == nullptr ? "" : format(" (%s + 0x%x)", best->name.c_str(), offset - best_offset);
  std::string rank = cluster_.size() == 1 ? "" : format(" of rank %u", shared_rank(shared));
  return format("shared 0x%x%s%s", offset, name.c_str(), rank.c_str());
}

std::string Checker::global_place_of(uint64_t address) const {
  return format("global 0x%" PRIx64 "%s", address,
                describe_global(cluster_.launch(), address).c_str());
}

}  // namespace warploom::emulator
