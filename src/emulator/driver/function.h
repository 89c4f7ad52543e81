// What is known about a kernel on a device, and what a program has set.

#ifndef WARPLOOM_EMULATOR_DRIVER_FUNCTION_H_
#define WARPLOOM_EMULATOR_DRIVER_FUNCTION_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "emulator/driver/session.h"

namespace warploom::emulator {

// The attributes of a function that are set, by their CUfunction_attribute; -1: not set.
constexpr int kFunctionAttributes = 32;
using FunctionSettings = std::array<int, kFunctionAttributes>;

FunctionSettings settings_of(const void* function);
void set_attribute(const void* function, int attribute, int value);

// Registers of a thread that the PTX allows: .maxnreg, or what the launch bounds leave. 0 if it says
// neither; only the compiler of the GPU knows how many there would be.
int registers_of(const FunctionFacts& facts);

// CTAs of so many threads that an SM holds at a time.
int ctas_per_sm(const FunctionFacts& facts, int64_t threads, std::size_t dynamic_shared);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_FUNCTION_H_
