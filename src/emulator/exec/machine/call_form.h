// Calls of device functions.
//
// All functions that an entry can reach are decoded into one program and share the register file of
// a warp, each with registers of its own. A lane that calls a function which may come back to the
// caller would overwrite the caller's registers; those are saved with the call and restored on
// return. Lanes that call together return together: a call is a join (exec/machine/warp.h).

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_CALL_FORM_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_CALL_FORM_H_

#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/exec/machine/program.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator {

// Addresses of functions: the tag and the index in ptx::Module::functions plus one.
constexpr uint64_t kCodeWindow = uint64_t{3} << 56;

constexpr uint64_t function_address(int index) {
  return kCodeWindow | (static_cast<uint64_t>(index) + 1);
}

// The other way round; -1 if the address is not that of a function.
constexpr int function_index(uint64_t address) {
  const uint64_t number = address - kCodeWindow;
  return number == 0 || number > INT_MAX ? -1 : static_cast<int>(number) - 1;
}

// Calls of one thread that may be active at a time.
constexpr uint32_t kMostCalls = 1024;

struct CallForm {
  int callee = -1;   // index into Program::functions; -1: the address is in Op::s[0]
  std::vector<Passed> inputs;
  std::vector<Passed> outputs;
};

// Why a function whose arguments and results have these bytes does not fit what a call passes;
// empty if it does.
std::string mismatch(const CallForm& form, const std::vector<uint32_t>& inputs,
                     const std::vector<uint32_t>& outputs);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_CALL_FORM_H_
