// cp.async: copies of 4 to 16 bytes of each lane, and the arrival that follows them.

#include <cstdint>
#include <cstring>

#include "emulator/async/mbarrier.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/movement/copy_form.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;
using ptx::Space;

struct CopyForm {
  Address destination;
  Address source;
  Ref bytes;
  Ref source_bytes;   // the rest is zero
  Ref ignore_source;  // predicate
};

Step copy_async(Warp& warp, const Op& op, uint32_t active) {
  const CopyForm& form = *static_cast<const CopyForm*>(op.form);
  for_each_lane(active, [&](int lane) {
    uint32_t bytes = warp.lanes<uint32_t>(form.bytes)[lane];
    uint32_t available = form.source_bytes.present()
                             ? warp.lanes<uint32_t>(form.source_bytes)[lane]
                             : bytes;
    if (form.ignore_source.present() && (warp.predicate(form.ignore_source) >> lane & 1)) {
      available = 0;
    }
    count_copy(warp, Path::kCopyAsync, available, bytes);
    if (available > bytes) fault("cp.async reads %u bytes and writes %u", available, bytes);
    uint8_t* to =
        resolve(warp, Space::kShared, lane, warp.address(form.destination, lane), bytes, bytes);
    const uint8_t* from =
        available == 0 ? nullptr
                       : resolve(warp, Space::kGlobal, lane, warp.address(form.source, lane),
                                 available, bytes);
    Checker* checker = checker_of(warp.cluster());
    TicketPtr ticket = checker != nullptr ? checker->issue_copy_async(warp, op, lane) : nullptr;
    uint64_t source = warp.address(form.source, lane);
    auto target = static_cast<uint32_t>(warp.address(form.destination, lane));
    warp.cluster().completions().add_to_group(warp, lane + kCpAsyncGroups, op, [=] {
      if (ticket != nullptr) {
        checker->async_global(*ticket, source, available, Touch::kRead);
        checker->async_shared(*ticket, target, bytes, Touch::kWrite);
      }
      if (available != 0) std::memcpy(to, from, available);
      std::memset(to + available, 0, bytes - available);
    });
  });
  return Step::kNext;
}

// The arrival is triggered when the copies before it have completed; here that is at once.
// Without .noinc the pending count is raised first, so that the phase's arrivals do not change.
Step copy_async_arrive(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    warp.cluster().completions().complete_groups(warp, lane + kCpAsyncGroups);
    auto address = static_cast<uint32_t>(warp.address(op, lane));
    Checker* checker = checker_of(warp.cluster());
    TicketPtr ticket = checker != nullptr ? checker->copy_async_done(warp, op, lane) : nullptr;
    uint64_t before = warp.cluster().update_mbarrier(
        address, [&](uint64_t state) {
          return op.flag != 0 ? mbarrier_arrive(state, 1) : mbarrier_arrive_beyond(state);
        });
    if (ticket == nullptr) return;
    uint64_t after;
    std::memcpy(&after, warp.cluster().shared_at(address, 8), sizeof(after));
    checker->mbarrier_signal(*ticket, address, before, after);
  });
  return Step::kNext;
}

}  // namespace

void decode_copy_async(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  if (decode_copy_group(decoder, true)) return;
  if (modifiers.take("mbarrier")) {
    modifiers.take("arrive");
    decoder.op.flag = modifiers.take("noinc") ? 1 : 0;
    take_space(decoder);
    modifiers.take("b64");
    decoder.op.address = decoder.address(decoder.operand(0));
    decoder.op.run = copy_async_arrive;
    return;
  }
  modifiers.take_all({"ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B",
                      "L2::256B"});
  bool policy = modifiers.take("L2::cache_hint");
  CopyForm form;
  decoder.expect_count(3, policy ? 5 : 4);
  form.destination = decoder.address(decoder.operand(0));
  form.source = decoder.address(decoder.operand(1));
  form.bytes = decoder.source(decoder.operand(2), Type::kU32);
  if (decoder.count() > (policy ? 4u : 3u)) {
    const Operand& extra = decoder.operand(3);
    bool predicate = extra.kind == Operand::kRegister && decoder.destination(extra, 0).bits == 1;
    if (predicate) {
      form.ignore_source = decoder.predicate(extra);
    } else {
      form.source_bytes = decoder.source(extra, Type::kU32);
    }
  }
  decoder.form(form);
  decoder.op.run = copy_async;
}

}  // namespace warploom::emulator
