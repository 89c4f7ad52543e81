// Instructions that change tensor maps, and the fences between these and the copies that use them.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_TENSOR_MAP_OPS_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_TENSOR_MAP_OPS_H_

#include "emulator/exec/isa/decoder.h"

namespace warploom::emulator {

// fence.proxy.tensormap::generic, from the operands on.
void decode_tensor_map_fence(Decoder& decoder, bool acquires);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_MOVEMENT_TENSOR_MAP_OPS_H_
