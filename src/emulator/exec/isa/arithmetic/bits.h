// What the instructions that work on bits share.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_BITS_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_BITS_H_

#include "emulator/exec/isa/decoder.h"

namespace warploom::emulator {

// Takes the type of an instruction: not a float, of `least` bits or more.
Type take_bits(Decoder& decoder, int least);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_ARITHMETIC_BITS_H_
