// Special registers and addresses of variables: values that a warp has from its start.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_SPECIAL_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_SPECIAL_H_

#include <string_view>

#include "emulator/exec/machine/program.h"
#include "emulator/exec/machine/warp.h"

namespace warploom::emulator {

// Bits of a special register such as "%tid.x", 1 of a predicate; 0 if the emulator does not know
// it.
int special_bits(std::string_view name);

// Writes the value into the register file of a warp that starts.
void fill_special(const Special& special, const Warp& warp);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_SPECIAL_H_
