// The statements between the braces of a function.

#ifndef WARPLOOM_EMULATOR_PTX_BODY_H_
#define WARPLOOM_EMULATOR_PTX_BODY_H_

#include "emulator/ptx/cursor.h"
#include "emulator/ptx/declaration.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

// Parses "{ ... }" into code, registers and variables of `function`. `globals` are the variables of
// the module, `formals` the parameters.
void parse_body(Cursor& cursor, const Names& globals, const Names& formals, Module& module,
                Function& function);

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_BODY_H_
