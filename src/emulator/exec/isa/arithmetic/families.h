// Instructions from registers to registers: each family adds its opcodes.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_FAMILIES_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_FAMILIES_H_

#include "emulator/exec/isa/decoder.h"

namespace warploom::emulator {

void add_integer_ops(DecodeTable& table);
void add_bit_ops(DecodeTable& table);
void add_logic_ops(DecodeTable& table);
void add_bit_field_ops(DecodeTable& table);
void add_dot_product_ops(DecodeTable& table);
void add_float_ops(DecodeTable& table);
void add_half_ops(DecodeTable& table);
void add_mixed_ops(DecodeTable& table);
void add_packed_ops(DecodeTable& table);
void add_carry_ops(DecodeTable& table);
void add_compare_ops(DecodeTable& table);
void add_compare_half_ops(DecodeTable& table);
void add_move_ops(DecodeTable& table);
void add_convert_ops(DecodeTable& table);
void add_convert_scale_ops(DecodeTable& table);
void add_convert_pack_ops(DecodeTable& table);
void add_convert_stochastic_ops(DecodeTable& table);
void add_warp_ops(DecodeTable& table);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_FAMILIES_H_
