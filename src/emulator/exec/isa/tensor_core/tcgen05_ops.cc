// tcgen05: which instruction it is, what they share, fences and waits.

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/check/tensor_memory_check.h"
#include "emulator/exec/isa/tensor_core/families.h"
#include "emulator/exec/isa/tensor_core/tcgen05.h"

namespace warploom::emulator {
namespace {

// Values of tcgen05.ld and tcgen05.st are there at once, since PTX may copy registers before the
// wait; only the checker has something to wait for.
template <void (TensorMemoryCheck::*kWait)(Warp&)>
Step wait(Warp& warp, const Op&, uint32_t active) {
  check_whole_warp(warp, active);
  if (Checker* checker = checker_of(warp.cluster())) (checker->tensor_memory().*kWait)(warp);
  return Step::kNext;
}

template <void (TensorMemoryCheck::*kWait)(Warp&)>
void decode_wait(Decoder& decoder) {
  take_aligned(decoder);
  decoder.expect_count(0, 0);
  decoder.op.run = wait<kWait>;
}

template <void (Checker::*kFence)(Warp&)>
Step fence(Warp& warp, const Op&, uint32_t) {
  if (Checker* checker = checker_of(warp.cluster())) (checker->*kFence)(warp);
  return Step::kNext;
}

template <void (Checker::*kFence)(Warp&)>
void decode_fence(Decoder& decoder) {
  decoder.expect_count(0, 0);
  decoder.op.run = fence<kFence>;
}

void decode_tcgen05(Decoder& decoder) {
  static const DecodeTable table = {
      {"alloc", decode_tcgen05_alloc},
      {"dealloc", decode_tcgen05_dealloc},
      {"relinquish_alloc_permit", decode_tcgen05_relinquish},
      {"ld", decode_tcgen05_load},
      {"st", decode_tcgen05_store},
      {"cp", decode_tcgen05_copy},
      {"shift", decode_tcgen05_shift},
      {"commit", decode_tcgen05_commit},
      {"mma", decode_tcgen05_mma},
      {"wait::ld", decode_wait<&TensorMemoryCheck::wait_loads>},
      {"wait::st", decode_wait<&TensorMemoryCheck::wait_stores>},
      {"fence::before_thread_sync", decode_fence<&Checker::fence_tensor_before>},
      {"fence::after_thread_sync", decode_fence<&Checker::fence_tensor_after>},
  };
  const std::string kind = decoder.modifiers.take_first();
  const auto found = table.find(kind);
  if (found == table.end()) decoder.fail("there is no instruction tcgen05." + kind);
  found->second(decoder);
}

}  // namespace

TensorGroup tensor_group(const Warp& warp, uint32_t cta_group) {
  Cta& cta = warp.cta();
  if (cta_group == 1) return {1, {&cta, nullptr}};
  const uint32_t even = cta.rank() & ~1u;
  if (even + 1 >= warp.cluster().size()) {
    fault("cta_group::2 in the CTA of rank %u of a cluster of %u: it has no peer", cta.rank(),
          warp.cluster().size());
  }
  return {2, {&warp.cluster().cta(even), &warp.cluster().cta(even + 1)}};
}

uint32_t take_cta_group(Decoder& decoder) {
  const int index = decoder.modifiers.take_one({"cta_group::1", "cta_group::2"});
  if (index < 0) decoder.fail("it needs .cta_group::1 or .cta_group::2");
  return static_cast<uint32_t>(index) + 1;
}

void take_aligned(Decoder& decoder) {
  if (!decoder.modifiers.take("sync") || !decoder.modifiers.take("aligned")) {
    decoder.fail("it needs .sync.aligned");
  }
  decoder.op.flow = Flow::kSync;
}

void check_whole_warp(const Warp&, uint32_t active) {
  if (active != kAllLanes) {
    fault("the instruction needs all 32 lanes of the warp, it is executed with mask 0x%x", active);
  }
}

std::vector<Ref> take_tensor_registers(Decoder& decoder, const ptx::Operand& operand,
                                       bool written) {
  std::vector<Ref> result;
  const auto take = [&](const ptx::Operand& element) {
    result.push_back(written ? decoder.destination(element, 32)
                             : decoder.source(element, Type::kB32));
    if (!result.back().present()) decoder.fail("a register is missing");
  };
  if (operand.kind == ptx::Operand::kVector) {
    for (const ptx::Operand& element : operand.elements) take(element);
  } else {
    take(operand);
  }
  return result;
}

uint32_t tensor_address(const Warp& warp, const Op& op, int lane) {
  return static_cast<uint32_t>(warp.address(op, lane));
}

uint32_t uniform_tensor_address(const Warp& warp, const Op& op) {
  const uint32_t address = tensor_address(warp, op, 0);
  for (int lane = 1; lane < kLanes; ++lane) {
    if (tensor_address(warp, op, lane) != address) {
      fault("lanes 0 and %d have different addresses of tensor memory, 0x%x and 0x%x; a warp needs "
            "one",
            lane, address, tensor_address(warp, op, lane));
    }
  }
  return address;
}

void issue_tensor_operation(Warp& warp, const Op& op, std::function<void()> complete) {
  warp.cluster().completions().add_to_pipeline(warp.cta().rank() / 2, op, std::move(complete));
}

void add_tcgen05_ops(DecodeTable& table) { table["tcgen05"] = decode_tcgen05; }

}  // namespace warploom::emulator
