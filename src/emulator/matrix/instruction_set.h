// Which instruction sets of the host the inner loops of matrix products may use.

#ifndef WARPLOOM_EMULATOR_MATRIX_INSTRUCTION_SET_H_
#define WARPLOOM_EMULATOR_MATRIX_INSTRUCTION_SET_H_

#include <cstdint>

namespace warploom::emulator {

enum class InstructionSet : uint8_t { kAny, kAvx2, kAvx512 };

// As in the names of kernels: any, avx2, avx512.
const char* instruction_set_name(InstructionSet set);

// Whether the processor has it, and WARPLOOM_EMULATOR_ISA, if set, names it or a wider one. A Fault
// if that names none.
bool may_use(InstructionSet set);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_INSTRUCTION_SET_H_
