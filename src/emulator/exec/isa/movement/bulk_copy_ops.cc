// cp.async.bulk and cp.reduce.async.bulk of contiguous bytes: issue; the data moves when they
// complete.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/async/bulk_copy.h"
#include "emulator/exec/isa/complete_bytes.h"
#include "emulator/exec/isa/movement/copy_form.h"

namespace warploom::emulator {
namespace {

void check_bulk_alignment(uint64_t destination, uint64_t source, uint32_t bytes) {
  if ((destination | source | bytes) & 15) {
    fault_of(FaultKind::kMisaligned,
             "addresses and size of a bulk copy must be multiples of 16: to 0x%llx, from 0x%llx, "
             "%u bytes",
             static_cast<unsigned long long>(destination), static_cast<unsigned long long>(source),
             bytes);
  }
}

void note_bulk(Cluster& cluster, const BulkForm& form, const Ticket& ticket, uint64_t to,
               uint64_t from, uint32_t bytes) {
  Checker& checker = *checker_of(cluster);
  if (form.from_shared) {
    checker.async_shared(ticket, static_cast<uint32_t>(from), bytes, Touch::kRead);
  } else {
    checker.async_global(ticket, from, bytes, Touch::kRead);
  }
  Touch touch = form.reduction == Reduction::kNone ? Touch::kWrite : Touch::kReadWrite;
  if (form.to_shared) {
    checker.async_shared(ticket, static_cast<uint32_t>(to), bytes, touch);
  } else {
    checker.async_global(ticket, to, bytes, touch);
  }
}

Step bulk_copy(Warp& warp, const Op& op, uint32_t active) {
  const BulkForm& form = *static_cast<const BulkForm*>(op.form);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    uint32_t bytes = warp.lanes<uint32_t>(form.bytes)[lane];
    uint64_t source = warp.address(form.source, lane);
    uint64_t destination = warp.address(form.destination, lane);
    check_bulk_alignment(destination, source, bytes);
    count_copy(warp, Path::kBulk, bytes, uint64_t{bytes} * copy_targets(warp, form, lane));
    const GlobalMemory& global = cluster.launch().memory;
    bool to_mbarrier = form.mbarrier.base.present();
    TicketPtr ticket = issue_copy(warp, op, lane, to_mbarrier);
    auto move = [&form, &cluster, &global, source, bytes, ticket](uint64_t to) {
      const uint8_t* from = form.from_shared
                                ? cluster.shared_at(static_cast<uint32_t>(source), bytes)
                                : global.at(source, bytes);
      uint8_t* into = form.to_shared ? cluster.shared_at(static_cast<uint32_t>(to), bytes)
                                     : global.at(to, bytes);
      if (ticket != nullptr) note_bulk(cluster, form, *ticket, to, source, bytes);
      if (form.reduction == Reduction::kNone) {
        std::memmove(into, from, bytes);  // both may be in one CTA's shared memory
      } else {
        bulk_reduce(form.type, form.reduction, into, from, bytes);
      }
    };
    if (!to_mbarrier) {
      cluster.completions().add_to_group(warp, lane, op, [=] { move(destination); });
      return;
    }
    for_each_target(warp, form, lane, [&](uint32_t target, uint32_t mbarrier) {
      cluster.completions().add(op, [=, &cluster] {
        if (ticket != nullptr) checker_of(cluster)->complete_on(*ticket, mbarrier);
        move(target);
        complete_bytes(cluster, mbarrier, bytes, ticket);
      });
    });
  });
  return Step::kNext;
}

Step nothing(Warp&, const Op&, uint32_t) { return Step::kNext; }

}  // namespace

void decode_bulk_copy(Decoder& decoder, bool reduces) {
  Modifiers& modifiers = decoder.modifiers;
  if (!reduces && decode_copy_group(decoder, false)) return;
  if (modifiers.take("prefetch")) {
    modifiers.take_all({"L2", "global", "L2::cache_hint"});
    decoder.op.run = nothing;
    return;
  }
  BulkForm form;
  BulkOptions options = take_bulk_options(decoder, form);
  if (reduces) {
    form.reduction = take_reduction(decoder);
    modifiers.take("noftz");
    form.type = modifiers.take_type();
    check_reduction(form.type, form.reduction);
  }
  form.destination = decoder.address(decoder.operand(0));
  form.source = decoder.address(decoder.operand(1));
  form.bytes = decoder.source(decoder.operand(2), Type::kU32);
  decoder.op.run = bulk_copy;
  std::size_t next = 3;
  if (options.to_mbarrier) form.mbarrier = decoder.address(decoder.operand(next++));
  take_hints(decoder, form, options, next);
  decoder.form(form);
}

}  // namespace warploom::emulator
