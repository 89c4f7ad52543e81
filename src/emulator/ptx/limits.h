// What a PTX module may ask for. Some limits are those of the hardware; the others keep a module
// that is wrong, or hostile, from taking the memory or the time of the host.

#ifndef WARPLOOM_EMULATOR_PTX_LIMITS_H_
#define WARPLOOM_EMULATOR_PTX_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace warploom::emulator::ptx {

// Of the hardware: PTX ISA, "Kernel Function Parameters"; CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability".
constexpr uint64_t kMostParameterBytes = 32764;
constexpr uint64_t kMostSharedBytes = 227 << 10;  // static, of an entry
constexpr uint64_t kMostLocalBytes = 512 << 10;   // of a thread

// Of the emulator.
constexpr std::size_t kMostTextBytes = 64 << 20;
constexpr std::size_t kMostShownCharacters = 80;  // of a token in a message
constexpr uint64_t kMostGlobalBytes = 1 << 30;    // .global and .const variables of a module
constexpr uint64_t kMostAlignment = 64 << 10;
constexpr uint32_t kMostFunctionRegisters = 1 << 20;
constexpr uint64_t kMostModuleRegisters = 1 << 24;
constexpr uint32_t kMostNesting = 256;            // of "{ ... }" in a function
constexpr uint64_t kMostTargets = 1 << 20;        // of the brx.idx of a function, together
// Instructions of the entries of a module, each with the functions that it can reach.
constexpr uint64_t kMostInstructions = 1 << 22;
// The registers, or the literals, of an entry with the functions that it can reach, of one warp.
constexpr std::size_t kMostRegisterBytes = 256 << 20;

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_LIMITS_H_
