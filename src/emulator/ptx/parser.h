// PTX text -> Module.

#ifndef WARPLOOM_EMULATOR_PTX_PARSER_H_
#define WARPLOOM_EMULATOR_PTX_PARSER_H_

#include <memory>
#include <string_view>

#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

// Throws Fault, naming the line, on anything that is not PTX or that the emulator does not know.
std::unique_ptr<Module> parse(std::string_view source);

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_PARSER_H_
