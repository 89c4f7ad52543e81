// tcgen05.mma.

#include "emulator/exec/tcgen05.h"

namespace warploom::emulator {

void decode_tcgen05_mma(Decoder& decoder) { decoder.fail("it is not supported"); }

}  // namespace warploom::emulator
