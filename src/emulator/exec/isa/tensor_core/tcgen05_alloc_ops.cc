// tcgen05.alloc, dealloc and relinquish_alloc_permit.

#include <cstring>
#include <optional>

#include "emulator/check/tensor_memory_check.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/tensor_core/tcgen05.h"

namespace warploom::emulator {
namespace {

struct AllocForm {
  uint32_t cta_group = 1;
  ptx::Space space = ptx::Space::kGeneric;  // of the address that is written
};

const AllocForm& form_of(const Op& op) { return *static_cast<const AllocForm*>(op.form); }

uint32_t uniform_columns(const Warp& warp, const Op& op) {
  const uint32_t* columns = warp.lanes<uint32_t>(op.s[0]);
  for (int lane = 1; lane < kLanes; ++lane) {
    if (columns[lane] != columns[0]) {
      fault("lanes 0 and %d have different numbers of columns, %u and %u; a warp needs one", lane,
            columns[0], columns[lane]);
    }
  }
  return columns[0];
}

// Wakes who waits for columns, or for the other CTA to ask for them.
void wake_group(const TensorGroup& group) {
  for (uint32_t i = 0; i < group.count; ++i) group.ctas[i]->wake(Wait::kTensorMemory, 0);
}

// The columns of a pair, once both CTAs have asked and there is room in both.
std::optional<uint32_t> allocate_pair(Warp& warp, const TensorGroup& group,
                                      const TensorAllocator::Request& request) {
  TensorAllocator& own = warp.cta().tensor_memory().allocator();
  if (std::optional<uint32_t> column = own.take(request.warp)) {
    wake_group(group);  // another warp of the CTA may ask now
    return column;
  }
  if (!own.ask(request)) return std::nullopt;
  if (!TensorAllocator::agree(group.ctas[0]->tensor_memory().allocator(),
                              group.ctas[1]->tensor_memory().allocator())) {
    return std::nullopt;
  }
  wake_group(group);
  return own.take(request.warp);
}

Step allocate(Warp& warp, const Op& op, uint32_t active) {
  check_whole_warp(warp, active);
  const AllocForm& form = form_of(op);
  const TensorGroup group = tensor_group(warp, form.cta_group);
  const TensorAllocator::Request request{uniform_columns(warp, op), form.cta_group, warp.id(),
                                         op.source->line};
  const uint64_t destination = warp.address(op, 0);
  if (shared_rank(shared_from(form.space, destination)) != warp.cta().rank()) {
    fault("tcgen05.alloc writes its address to shared memory of its own CTA; 0x%llx is another's",
          static_cast<unsigned long long>(destination));
  }
  uint8_t* place = resolve(warp, form.space, 0, destination, 4, 4);
  const std::optional<uint32_t> column =
      form.cta_group == 2 ? allocate_pair(warp, group, request)
                          : warp.cta().tensor_memory().allocator().allocate(request);
  if (!column) {
    warp.park({Wait::kTensorMemory, 0});
    return Step::kRetry;
  }
  if (Checker* checker = checker_of(warp.cluster())) {
    checker->generic_lane(warp, op, 0, form.space, destination, 4, Touch::kWrite);
    checker->tensor_memory().allocate(warp, op, *column, request.columns);
  }
  std::memcpy(place, &*column, sizeof(*column));
  return Step::kNext;
}

Step free(Warp& warp, const Op& op, uint32_t active) {
  check_whole_warp(warp, active);
  const uint32_t cta_group = form_of(op).cta_group;
  const TensorGroup group = tensor_group(warp, cta_group);
  const uint32_t address = warp.lanes<uint32_t>(op.s[1])[0];
  const uint32_t columns = uniform_columns(warp, op);
  warp.cta().tensor_memory().allocator().free(address, columns, cta_group);
  if (Checker* checker = checker_of(warp.cluster())) {
    checker->tensor_memory().free(warp, op, address, columns);
  }
  wake_group(group);
  return Step::kNext;
}

Step relinquish(Warp& warp, const Op& op, uint32_t active) {
  check_whole_warp(warp, active);
  warp.cta().tensor_memory().allocator().relinquish(op.source->line);
  return Step::kNext;
}

AllocForm take_form(Decoder& decoder) {
  take_aligned(decoder);
  AllocForm form;
  form.cta_group = take_cta_group(decoder);
  return form;
}

}  // namespace

// tcgen05.alloc [destination], columns
void decode_tcgen05_alloc(Decoder& decoder) {
  AllocForm form = take_form(decoder);
  if (decoder.modifiers.take("shared::cta")) form.space = ptx::Space::kShared;
  if (!decoder.modifiers.take("b32")) decoder.fail("it needs .b32");
  decoder.expect_count(2, 2);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kU32);
  decoder.form(form);
  decoder.op.run = allocate;
}

// tcgen05.dealloc address, columns
void decode_tcgen05_dealloc(Decoder& decoder) {
  const AllocForm form = take_form(decoder);
  if (!decoder.modifiers.take("b32")) decoder.fail("it needs .b32");
  decoder.expect_count(2, 2);
  decoder.op.s[1] = decoder.source(decoder.operand(0), Type::kU32);
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kU32);
  decoder.form(form);
  decoder.op.run = free;
}

void decode_tcgen05_relinquish(Decoder& decoder) {
  const AllocForm form = take_form(decoder);
  decoder.expect_count(0, 0);
  decoder.form(form);
  decoder.op.run = relinquish;
}

}  // namespace warploom::emulator
