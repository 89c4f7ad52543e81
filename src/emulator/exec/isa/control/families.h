// Control flow and synchronisation: each family adds its opcodes.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_FAMILIES_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_FAMILIES_H_

#include "emulator/exec/isa/decoder.h"

namespace warploom::emulator {

void add_control_ops(DecodeTable& table);
void add_call_ops(DecodeTable& table);
void add_launch_control_ops(DecodeTable& table);
void add_barrier_ops(DecodeTable& table);
void add_mbarrier_ops(DecodeTable& table);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_FAMILIES_H_
