// wgmma.mma_async, also with a sparse A (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate").

#ifndef WARPLOOM_EMULATOR_MATRIX_WGMMA_H_
#define WARPLOOM_EMULATOR_MATRIX_WGMMA_H_

#include <cstdint>

#include "emulator/matrix/descriptor.h"
#include "emulator/memory/memory.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

// What the opcode and the immediate operands say of an m64nNkK instruction.
struct WgmmaForm {
  int n;
  int k;
  Type d;
  Type a;
  Type b;
  bool a_in_registers;
  bool trans_a;  // MN-major shared operands
  bool trans_b;
  bool negate_a;  // imm-scale-a, imm-scale-b of -1
  bool negate_b;
  bool satfinite;
  bool sparse;   // A holds half of the elements of K
  int selector;  // which lanes of each four hold the metadata
};

// The registers of the warpgroup's four warps and the descriptors.
struct WgmmaOperands {
  uint32_t* const* d;        // [register * 4 + warp] -> [32]
  const uint32_t* const* a;  // the same, only if A is in registers
  uint64_t a_descriptor;     // only if it is not
  uint64_t b_descriptor;
  bool accumulate;  // scale-d
  const uint32_t* metadata[4];  // of a sparse A: a register of each warp
};

// A Fault that names the rule if there is no such instruction. Call it once, when loading.
void check_wgmma(const WgmmaForm& form);

// Calls visit(offset, bytes) for the shared memory that it reads.
template <class Visit>
void wgmma_reads(const WgmmaForm& form, const WgmmaOperands& operands, Visit visit) {
  auto visit_operand = [&](uint64_t bits, bool mn_major, int blocks, int steps) {
    const MatrixDescriptor descriptor = parse_wgmma_descriptor(bits);
    for (int block = 0; block < blocks; ++block) {
      uint32_t offsets[kMostBlockChunks];
      block_offsets(descriptor, mn_major, block, steps, offsets);
      for (int i = 0; i < 8 * steps; ++i) visit(offsets[i], 16u);
    }
  };
  if (!form.a_in_registers) {
    visit_operand(operands.a_descriptor, form.trans_a, 64 / 8, kDenseSteps);
  }
  visit_operand(operands.b_descriptor, form.trans_b, form.n / 8,
                form.sparse ? kMostSteps : kDenseSteps);
}

// Executes it at once. Accumulation is that of Product; an f16 accumulator is widened, and rounded
// to nearest at the end of the instruction.
void wgmma(const WgmmaForm& form, const WgmmaOperands& operands, const SharedMemory& memory);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_WGMMA_H_
