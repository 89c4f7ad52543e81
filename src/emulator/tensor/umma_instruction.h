// The forms of tcgen05.mma and their 32-bit instruction descriptors (PTX ISA, "tcgen05",
// "Instruction descriptor").

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_INSTRUCTION_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_INSTRUCTION_H_

#include <cstdint>

#include "emulator/ptx/types.h"
#include "emulator/tensor/umma_legality.h"

namespace warploom::emulator {

// What the opcode and the kinds of its operands say.
struct UmmaForm {
  UmmaKind kind;
  int cta_group;            // 1 or 2
  bool sparse;              // .sp: A holds half of the elements of K
  bool weight_stationary;   // .ws
  bool a_in_tensor_memory;
  bool shift_a;             // .ashift
  int scale_vectors;        // scale factors for each row of A: 1, 2, 4; 0 without block scaling
  int scale_input;          // scale-input-d
};

// What the descriptor says of one execution, and what follows for a form.
struct UmmaInstruction {
  int m;  // rows of both CTAs of a pair
  int n;
  int k;           // of A as it is stored
  int b_k;         // of B: twice as many if A is sparse
  int metadata_id;  // the sparsity selector
  Type d;
  Type a;
  Type b;
  bool saturate;  // integers clamp, else they wrap around
  bool negate_a;
  bool negate_b;
  bool transpose_a;  // MN-major in shared memory
  bool transpose_b;
  int max_shift;      // of a zero-column mask
  bool scale_ue4m3;   // scale factors are ue4m3, else ue8m0
  int scale_a_id;     // first byte of the scale factors in their words
  int scale_b_id;
};

// A Fault that names the rule if there is no such form. Call it once, when loading.
void check_umma(const UmmaForm& form);

// A Fault that names the field if the form has no such instruction.
UmmaInstruction parse_umma_instruction(const UmmaForm& form, uint32_t bits);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_INSTRUCTION_H_
