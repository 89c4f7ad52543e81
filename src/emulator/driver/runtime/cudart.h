// What the files of the emulated runtime library share.

#ifndef WARPLOOM_EMULATOR_DRIVER_RUNTIME_CUDART_H_
#define WARPLOOM_EMULATOR_DRIVER_RUNTIME_CUDART_H_

#include <cstdint>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/driver_api.h"

namespace warploom::emulator::runtime {

// Keeps an error for cudaGetLastError, and returns it.
int noted(int code);
// The last error of this thread, which is cleared then if `clear`.
int last_error(bool clear);

// A kernel that failed: the next call that waits for the device returns it too, since programs look
// for it there.
void launch_failed(int code);
// What a call that waits returns.
int waited(int code);

// A function or variable of the program, by the address that nvcc's code has registered: a handle of
// the driver for the current device. nullptr, with an error, if there is none.
void* function_of(const void* host_function);
bool find_variable(const void* host_variable, uint64_t* address, std::size_t* bytes);

inline uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
inline uint64_t* address_at(void** pointer) { return reinterpret_cast<uint64_t*>(pointer); }

struct Dim3 {
  unsigned x, y, z;
};

}  // namespace warploom::emulator::runtime

#endif  // WARPLOOM_EMULATOR_DRIVER_RUNTIME_CUDART_H_
