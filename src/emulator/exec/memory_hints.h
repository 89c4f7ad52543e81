// Modifiers that loads, stores and atomics have in common.

#ifndef WARPLOOM_EMULATOR_EXEC_MEMORY_HINTS_H_
#define WARPLOOM_EMULATOR_EXEC_MEMORY_HINTS_H_

#include "emulator/check/checker.h"
#include "emulator/exec/decoder.h"

namespace warploom::emulator {

// Takes those of memory order, scope and caching; only the order matters.
Order take_memory_hints(Decoder& decoder);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MEMORY_HINTS_H_
