// Functions that the system provides to kernels (CUDA C++ Programming Guide, "Formatted Output",
// "Assertion" and "Dynamic Global Memory Allocation and Operations").

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_SYSTEM_CALL_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_SYSTEM_CALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

struct SystemCall {
  const char* name;
  std::vector<uint32_t> inputs;   // bytes of each
  std::vector<uint32_t> outputs;
  Run run;                        // Op::form is a CallForm
};

// nullptr if the system has no such function.
const SystemCall* find_system_call(const std::string& name);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_SYSTEM_CALL_H_
