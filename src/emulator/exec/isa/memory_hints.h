// Modifiers that loads, stores and atomics have in common.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_MEMORY_HINTS_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_MEMORY_HINTS_H_

#include "emulator/check/ordering.h"
#include "emulator/exec/isa/decoder.h"

namespace warploom::emulator {

// .cta, .cluster, .gpu or .sys; that of the device if none is there.
Scope take_scope(Modifiers& modifiers);

// Takes the modifiers of memory order, scope and caching; the last do not matter.
Ordering take_memory_hints(Decoder& decoder);

// Those of atom and red, which are .relaxed if nothing is said (PTX ISA, "atom").
Ordering take_atomic_ordering(Modifiers& modifiers);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_MEMORY_HINTS_H_
