// Instructions in words.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_DESCRIBE_OP_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_DESCRIBE_OP_H_

#include <string>

#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

// "PTX line 12 (kernel.cu:7): mbarrier.try_wait.parity.b64".
std::string describe_op(const Program& program, const Op& op);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_DESCRIBE_OP_H_
