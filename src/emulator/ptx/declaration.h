// Declarations of variables and parameters.

#ifndef WARPLOOM_EMULATOR_PTX_DECLARATION_H_
#define WARPLOOM_EMULATOR_PTX_DECLARATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/ptx/cursor.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

using Names = std::unordered_map<std::string, const Variable*>;

// ".shared .align 16 .b8 buffer[1024], other[4];" with its semicolon.
std::vector<std::unique_ptr<Variable>> parse_variables(Cursor& cursor);

// ".param .u64 .ptr .global .align 16 name" up to the comma or parenthesis that follows.
std::unique_ptr<Variable> parse_parameter(Cursor& cursor);

// A parameter or result of a device function, ".param .b32 name" or ".reg .b32 name": what it names
// is added to the frame or to the registers of `function`.
Formal parse_formal(Cursor& cursor, Module& module, Function& function);

// What a memory that variables are placed in may hold.
struct SpaceLimit {
  const char* name;
  uint64_t bytes;
};
extern const SpaceLimit kGlobalSpace, kParameterSpace, kSharedSpace, kLocalSpace;

// Gives a variable the next aligned offset of its space; a Fault if there is no room.
void place(Variable& variable, uint64_t& space_bytes, const SpaceLimit& limit);

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_DECLARATION_H_
