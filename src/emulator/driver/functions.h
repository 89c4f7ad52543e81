// The functions of the driver API by name, for cuGetProcAddress.

#ifndef WARPLOOM_EMULATOR_DRIVER_FUNCTIONS_H_
#define WARPLOOM_EMULATOR_DRIVER_FUNCTIONS_H_

#include <string_view>

namespace warploom::emulator {

struct FoundFunction {
  void* address = nullptr;  // null if there is none for this version
  bool is_known = false;    // for some other version
};

// What a name means to a program of a version of CUDA, such as 12000: the newest that is not newer.
FoundFunction find_function(std::string_view name, int version);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_FUNCTIONS_H_
