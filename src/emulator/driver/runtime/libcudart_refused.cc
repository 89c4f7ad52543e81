// libcudart.so.13 of the emulator: the functions that it does not serve. Programs that are linked
// with them start, and a call says which function it was.

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/runtime/cudart.h"

using namespace warploom::emulator;           // NOLINT: everything below belongs to the emulator
using namespace warploom::emulator::runtime;  // NOLINT

namespace {

int refuse(const char* why) { return noted(warploom_emulator_fail(abi::kNotSupported, why)); }

}  // namespace

// They take no typed parameters: callers pass arguments in registers or on a stack that they clean
// up.
#define SERVED(name)
#define REFUSED(name) \
  WARPLOOM_CUDA_API int name() { return refuse(#name " is not served (cudaErrorNotSupported)"); }
#include "emulator/driver/runtime/function_table.h"
#undef SERVED
#undef REFUSED
