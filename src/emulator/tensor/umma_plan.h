// One execution of tcgen05.mma with all its descriptors and addresses decoded and checked.

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_PLAN_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_PLAN_H_

#include <cstdint>

#include "emulator/tensor/umma_instruction.h"
#include "emulator/tensor/umma_layout.h"
#include "emulator/tensor/umma_operand.h"

namespace warploom::emulator {

// The values of the operands.
struct UmmaOperands {
  uint64_t a;  // a descriptor, or an address in tensor memory
  uint64_t b;  // a descriptor
  uint32_t d;  // an address in tensor memory, as are the scale factors
  uint32_t instruction;
  bool accumulate;             // enable-input-d
  uint32_t disabled_lanes[8];  // four words for each CTA
  uint64_t zero_columns;       // of .ws
  uint32_t scale_a;
  uint32_t scale_b;
  uint32_t metadata;  // of a sparse A
};

struct UmmaPlan {
  UmmaForm form;
  UmmaInstruction instruction;
  DataPath path;
  bool accumulate;
  uint32_t disabled_lanes[8];
  TensorCell d;
  TensorCell tensor_a;  // of the two places of A, the one of the form counts
  UmmaOperand shared_a;
  UmmaOperand shared_b;
  ZeroColumns zero_columns;
  TensorCell scale_a;  // with block scaling
  TensorCell scale_b;
  TensorCell metadata;  // of a sparse A

  int bank_columns() const { return instruction.n / path.banks; }     // of D
  int b_rows() const { return instruction.n / form.cta_group; }       // of B in each CTA
  uint32_t lane(int row, int bank) const {
    return d.lane + static_cast<uint32_t>(path.lane(row, bank));
  }
  bool is_disabled(int cta, uint32_t lane) const {
    return (disabled_lanes[4 * cta + static_cast<int>(lane / 32)] >> lane % 32 & 1) != 0;
  }
};

// A Fault that names the field if a descriptor or an address is illegal.
UmmaPlan plan_umma(const UmmaForm& form, const UmmaOperands& operands);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_PLAN_H_
