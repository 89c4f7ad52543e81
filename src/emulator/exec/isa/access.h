// Where an address of a lane points to.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_ACCESS_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_ACCESS_H_

#include <cstdint>

#include "emulator/exec/isa/decoder.h"
#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {

// The bytes [address, address + count), aligned to `alignment`, in a space; a Fault if they are not
// there. Parameters and constants are only read.
uint8_t* resolve(Warp& warp, ptx::Space space, int lane, uint64_t address, uint32_t count,
                 uint32_t alignment);

// The shared::cluster address of a shared or generic address; a Fault if it is not shared memory.
uint32_t shared_from(ptx::Space space, uint64_t address);

// Takes .global, .shared::cta and so on; generic if there is none.
ptx::Space take_space(Decoder& decoder);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_ACCESS_H_
