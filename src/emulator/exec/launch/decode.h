// From a module in PTX to what is executed.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_DECODE_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_DECODE_H_

#include <memory>

#include "emulator/exec/launch/reach.h"
#include "emulator/exec/machine/program.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator {

// Decodes an entry function and those it can reach. Throws Fault, naming opcode and line, on
// whatever is not known. `calls` are those of the module.
std::unique_ptr<Program> decode(const ptx::Module& module, CallGraph& calls,
                                const ptx::Function& function);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_DECODE_H_
