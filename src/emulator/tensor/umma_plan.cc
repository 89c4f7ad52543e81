#include "emulator/tensor/umma_plan.h"

#include <algorithm>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// Bits 30 and 31 of such an address may repeat the number of the first byte, which the instruction
// descriptor has as well.
TensorCell scale_address(uint32_t bits) {
  const TensorCell address = tensor_cell(bits & ~(3u << 30));
  if (address.lane != 0) {
    fault("scale factors of tcgen05.mma start at lane %u; every quarter of the lanes has all of "
          "them, and they must start at lane 0",
          address.lane);
  }
  return address;
}

UmmaOperand shared_operand(Type type, int k, int steps, bool mn_major, uint64_t descriptor) {
  const UmmaOperand operand{type, k, steps, mn_major, parse_umma_descriptor(descriptor)};
  check_umma_operand(operand);
  const UmmaDescriptor& place = operand.descriptor;
  const auto bytes = static_cast<uint32_t>(steps * kUmmaRowBytes);
  if (steps > 1 && !mn_major && place.swizzled() &&
      place.start % place.row_bytes + bytes > place.row_bytes) {
    fault("B of tcgen05.mma.sp has rows of %u bytes, which start at byte %u of the %u bytes of a "
          "swizzle atom; rows that go on in another atom are not supported",
          bytes, place.start % place.row_bytes, place.row_bytes);
  }
  return operand;
}

// The column that the sparsity selector chooses of a pair.
TensorCell metadata_address(uint32_t bits, int selector) {
  TensorCell address = tensor_cell(bits);
  if (address.lane != 0 || address.column % 2 != 0) {
    fault("the metadata of tcgen05.mma.sp starts at lane %u and column %u; it must start at lane 0 "
          "and an even column",
          address.lane, address.column);
  }
  address.column += static_cast<uint32_t>(selector);
  return address;
}

void check_lanes(const UmmaPlan& plan) {
  if (plan.d.lane != 0 && !(plan.path.scattered && plan.d.lane == 16)) {
    fault("D of tcgen05.mma with M = %d starts at lane %u; it must start at lane 0%s",
          plan.instruction.m, plan.d.lane, plan.path.scattered ? " or 16" : "");
  }
  if (plan.form.a_in_tensor_memory && plan.tensor_a.lane != plan.d.lane) {
    fault("A of tcgen05.mma starts at lane %u of tensor memory and D at lane %u; they must start "
          "at the same lane",
          plan.tensor_a.lane, plan.d.lane);
  }
}

}  // namespace

UmmaPlan plan_umma(const UmmaForm& form, const UmmaOperands& operands) {
  const UmmaInstruction i = parse_umma_instruction(form, operands.instruction);
  UmmaPlan plan{form,
                i,
                umma_data_path(i.m, form.cta_group, form.weight_stationary),
                operands.accumulate,
                {},
                tensor_cell(operands.d),
                {},
                {},
                shared_operand(i.b, i.b_k, i.b_k / i.k, i.transpose_b, operands.b),
                {},
                {},
                {},
                {}};
  std::copy_n(operands.disabled_lanes, 8, plan.disabled_lanes);
  if (form.a_in_tensor_memory) {
    plan.tensor_a = tensor_cell(static_cast<uint32_t>(operands.a));
  } else {
    plan.shared_a = shared_operand(i.a, i.k, 1, i.transpose_a, operands.a);
  }
  if (form.weight_stationary) {
    plan.zero_columns = ZeroColumns(operands.zero_columns, i.m, i.n, i.max_shift);
  }
  if (form.scale_vectors != 0) {
    plan.scale_a = scale_address(operands.scale_a);
    plan.scale_b = scale_address(operands.scale_b);
  }
  if (form.sparse) plan.metadata = metadata_address(operands.metadata, i.metadata_id);
  check_lanes(plan);
  return plan;
}

}  // namespace warploom::emulator
