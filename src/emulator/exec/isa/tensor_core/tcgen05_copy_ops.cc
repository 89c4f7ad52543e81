// tcgen05.cp, tcgen05.shift and tcgen05.commit: what a thread issues besides mma.

#include <cstdint>
#include <string>

#include "emulator/async/mbarrier.h"
#include "emulator/check/tensor_memory_check.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/tensor_core/tcgen05.h"
#include "emulator/exec/machine/counters.h"
#include "emulator/tensor/shared_to_tensor.h"

namespace warploom::emulator {
namespace {

struct CopyForm {
  SharedToTensor copy;
  uint32_t cta_group = 1;
};

struct CommitForm {
  uint32_t cta_group = 1;
  ptx::Space space = ptx::Space::kGeneric;
  Ref multicast;  // mask of CTAs
};

// What the checker is told.
void show_copy(Checker& checker, const TicketPtr& ticket, const CopyForm& form,
               const UmmaDescriptor& descriptor, TensorAddress base, const TensorGroup& group) {
  TensorMemoryCheck::Accessor accessor = checker.tensor_memory().execute(ticket);
  for (uint32_t i = 0; i < group.count; ++i) {
    const uint32_t rank = group.ctas[i]->rank();
    visit_shared(form.copy, descriptor, [&](uint32_t offset, uint32_t bytes) {
      checker.async_shared(*ticket, shared_address(rank, offset), bytes, Touch::kRead);
    });
    visit_tensor(form.copy, base, [&](uint32_t lane, uint32_t column, uint32_t columns) {
      accessor.write(rank, lane, column, columns);
    });
  }
}

void show_shift(Checker& checker, const TicketPtr& ticket, TensorAddress base,
                const TensorGroup& group) {
  TensorMemoryCheck::Accessor accessor = checker.tensor_memory().execute(ticket);
  for (uint32_t i = 0; i < group.count; ++i) {
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      accessor.read(group.ctas[i]->rank(), lane, base.column, kShiftColumns);
      accessor.write(group.ctas[i]->rank(), lane, base.column, kShiftColumns);
    }
  }
}

TicketPtr ticket_of(Warp& warp, const Op& op, int lane) {
  Checker* checker = checker_of(warp.cluster());
  return checker != nullptr ? checker->issue_tcgen05(warp, op, lane) : nullptr;
}

void count(const Warp& warp, uint64_t read, uint64_t written) {
  if (Counters* counters = warp.cluster().counters()) {
    counters->moved(Path::kTensorMemory, read, written);
  }
}

// Each CTA of a pair copies from its own shared memory to its own tensor memory.
Step copy(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CopyForm*>(op.form);
  const TensorGroup group = tensor_group(warp, form.cta_group);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    const UmmaDescriptor descriptor = parse_umma_descriptor(warp.lanes<uint64_t>(op.s[0])[lane]);
    const TensorAddress base(tensor_address(warp, op, lane));
    const TicketPtr ticket = ticket_of(warp, op, lane);
    const SharedToTensorShape& shape = *form.copy.shape;
    count(warp, 0, uint64_t{group.count} * shape.rows * shape.copies * shape.chunks * kUmmaChunk);
    issue_tensor_operation(warp, op, [=, &form, &cluster] {
      if (ticket != nullptr) {
        show_copy(*checker_of(cluster), ticket, form, descriptor, base, group);
      }
      for (uint32_t i = 0; i < group.count; ++i) {
        Cta& cta = *group.ctas[i];
        copy_shared_to_tensor(form.copy, descriptor, cta.shared(), cta.tensor_memory(), base);
      }
    });
  });
  return Step::kNext;
}

Step shift(Warp& warp, const Op& op, uint32_t active) {
  const TensorGroup group = tensor_group(warp, op.flag);
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    const uint32_t address = tensor_address(warp, op, lane);
    const TensorAddress base(address);
    if (base.lane % kLanes != 0) {
      fault("lane %u of the address 0x%x is not a multiple of 32", base.lane, address);
    }
    const TicketPtr ticket = ticket_of(warp, op, lane);
    count(warp, group.count * kShiftBytes, group.count * kShiftBytes);
    issue_tensor_operation(warp, op, [=, &cluster] {
      if (ticket != nullptr) show_shift(*checker_of(cluster), ticket, base, group);
      for (uint32_t i = 0; i < group.count; ++i) shift_down(group.ctas[i]->tensor_memory(), base);
    });
  });
  return Step::kNext;
}

// `ticket` is that of the commit; nullptr if nothing is checked.
void arrive(Cluster& cluster, uint32_t mbarrier, const TicketPtr& ticket) {
  const uint64_t before = cluster.update_mbarrier(
      mbarrier, [](uint64_t state) { return mbarrier_arrive(state, 1); });
  if (ticket == nullptr) return;
  checker_of(cluster)->mbarrier_signal(*ticket, mbarrier, before, mbarrier_arrive(before, 1));
}

// Arrives when all that the thread has issued before is complete, in the CTAs of a multicast one by
// one.
Step commit(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CommitForm*>(op.form);
  Cluster& cluster = warp.cluster();
  tensor_group(warp, form.cta_group);
  for_each_lane(active, [&](int lane) {
    const uint32_t mbarrier = shared_from(form.space, warp.address(op, lane));
    Checker* checker = checker_of(cluster);
    const TicketPtr ticket = checker != nullptr ? checker->commit_tcgen05(warp, op, lane) : nullptr;
    if (!form.multicast.present()) {
      issue_tensor_operation(warp, op, [=, &cluster] { arrive(cluster, mbarrier, ticket); });
      return;
    }
    const uint32_t mask = warp.lanes<uint32_t>(form.multicast)[lane] & 0xffff;
    if (mask == 0) fault("the multicast mask is zero");
    issue_tensor_operation(warp, op, [=, &cluster, &op] {
      for_each_lane(mask, [&](int rank) {
        const uint32_t target =
            shared_address(static_cast<uint32_t>(rank), shared_offset(mbarrier));
        cluster.completions().add(op, [=, &cluster] { arrive(cluster, target, ticket); });
      });
    });
  });
  return Step::kNext;
}

const SharedToTensorShape* take_shape(Decoder& decoder) {
  for (const SharedToTensorShape& shape : kSharedToTensorShapes) {
    if (!decoder.modifiers.take(shape.name)) continue;
    // 64x128b has two ways to multicast, the others have one or none.
    for (const SharedToTensorShape& candidate : kSharedToTensorShapes) {
      if (candidate.name != shape.name) continue;
      if (candidate.multicast.empty() || decoder.modifiers.take(candidate.multicast)) {
        return &candidate;
      }
    }
    decoder.fail("." + std::string(shape.name) + " needs ." + std::string(shape.multicast) +
                 (shape.rows == 64 ? " or .warpx2::01_23" : ""));
  }
  decoder.fail("it needs a shape: .128x256b, .4x256b, .128x128b, .64x128b or .32x128b");
}

}  // namespace

// tcgen05.cp [taddr], descriptor
void decode_tcgen05_copy(Decoder& decoder) {
  CopyForm form;
  form.cta_group = take_cta_group(decoder);
  form.copy.shape = take_shape(decoder);
  const int source = decoder.modifiers.take_one({"b6x16_p32", "b4x16_p64"});
  if ((source >= 0) != decoder.modifiers.take("b8x16")) {
    decoder.fail("it needs both formats, such as .b8x16.b6x16_p32, or none");
  }
  form.copy.decompression = source < 0    ? Decompression::kNone
                            : source == 0 ? Decompression::kB6x16P32
                                          : Decompression::kB4x16P64;
  decoder.expect_count(2, 2);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kB64);
  decoder.form(form);
  decoder.op.run = copy;
}

// tcgen05.shift.down [taddr]
void decode_tcgen05_shift(Decoder& decoder) {
  decoder.op.flag = static_cast<uint8_t>(take_cta_group(decoder));
  if (!decoder.modifiers.take("down")) decoder.fail("it needs .down");
  decoder.expect_count(1, 1);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.run = shift;
}

// tcgen05.commit.mbarrier::arrive::one [mbarrier], mask
void decode_tcgen05_commit(Decoder& decoder) {
  CommitForm form;
  form.cta_group = take_cta_group(decoder);
  if (!decoder.modifiers.take("mbarrier::arrive::one")) {
    decoder.fail("it needs .mbarrier::arrive::one");
  }
  if (decoder.modifiers.take("shared::cluster")) form.space = ptx::Space::kShared;
  const bool multicast = decoder.modifiers.take("multicast::cluster");
  if (!decoder.modifiers.take("b64")) decoder.fail("it needs .b64");
  decoder.expect_count(multicast ? 2 : 1, multicast ? 2 : 1);
  decoder.op.address = decoder.address(decoder.operand(0));
  if (multicast) form.multicast = decoder.source(decoder.operand(1), Type::kU16);
  decoder.form(form);
  decoder.op.run = commit;
}

}  // namespace warploom::emulator
