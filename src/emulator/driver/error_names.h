// The names of the errors that both interfaces of CUDA know; their numbers are equal.

#ifndef WARPLOOM_EMULATOR_DRIVER_ERROR_NAMES_H_
#define WARPLOOM_EMULATOR_DRIVER_ERROR_NAMES_H_

namespace warploom::emulator {

// nullptr if there is no such error.
const char* driver_error_name(int code);
const char* runtime_error_name(int code);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_ERROR_NAMES_H_
