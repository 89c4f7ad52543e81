// Instructions of the tensor cores: each family adds its opcodes.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_TENSOR_CORE_FAMILIES_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_TENSOR_CORE_FAMILIES_H_

#include "emulator/exec/isa/decoder.h"

namespace warploom::emulator {

void add_matrix_ops(DecodeTable& table);
void add_mma_ops(DecodeTable& table);
void add_wmma_ops(DecodeTable& table);
void add_wgmma_ops(DecodeTable& table);
void add_tcgen05_ops(DecodeTable& table);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_TENSOR_CORE_FAMILIES_H_
