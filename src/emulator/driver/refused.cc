// libcuda.so.1 of the emulator: the functions that it does not serve. Programs that are linked with
// them start, and a call says which function it was.

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

int refuse(const char* name) {
  return guarded(abi::kNotSupported, [&] {
    return fail(abi::kNotSupported,
                std::string(name) + " is not served (CUDA_ERROR_NOT_SUPPORTED)");
  });
}

}  // namespace

// They take no typed parameters: callers pass arguments in registers or on a stack that they clean
// up.
#define SERVED(name, symbol, since)
#define REFUSED(name, symbol, since) \
  WARPLOOM_CUDA_API int symbol() { return refuse(#name); }
#include "emulator/driver/function_table.h"
#undef SERVED
#undef REFUSED
