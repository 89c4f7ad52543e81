// Global addresses in the words of who launched the kernel.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_GLOBAL_PLACE_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_GLOBAL_PLACE_H_

#include <cstdint>
#include <string>

namespace warploom::emulator {

class Fault;
struct Launch;

// " (offset 64 of the 4096 bytes at 0x..., parameter 2)"; empty if no allocation holds it. The
// parameter is the one that points into the allocation, or whose tensor map does.
std::string describe_global(const Launch& launch, uint64_t address);

// What is wrong, and for an access out of bounds also the allocation below it.
std::string explain(const Fault& error, const Launch& launch);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_GLOBAL_PLACE_H_
