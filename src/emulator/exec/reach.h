// Which functions belong to a program.

#ifndef WARPLOOM_EMULATOR_EXEC_REACH_H_
#define WARPLOOM_EMULATOR_EXEC_REACH_H_

#include <vector>

#include "emulator/exec/program.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator {

// The entry first, then every function that it can call, directly or through a pointer. Of each
// `source`, `index` and `recursive` are set.
std::vector<ProgramFunction> reachable_functions(const ptx::Module& module,
                                                 const ptx::Function& entry);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_REACH_H_
