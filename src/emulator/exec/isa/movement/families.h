// Instructions that move data: each family adds its opcodes.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_FAMILIES_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_FAMILIES_H_

#include "emulator/exec/isa/decoder.h"

namespace warploom::emulator {

void add_load_store_ops(DecodeTable& table);
void add_wide_ops(DecodeTable& table);
void add_async_store_ops(DecodeTable& table);
void add_atomic_ops(DecodeTable& table);
void add_copy_ops(DecodeTable& table);
void add_tensor_map_ops(DecodeTable& table);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_FAMILIES_H_
