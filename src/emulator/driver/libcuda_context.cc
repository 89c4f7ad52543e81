// libcuda.so.1 of the emulator: contexts and memory. TVM takes both from the runtime library; these
// are for programs that use the driver API alone.

#include <cstddef>
#include <cstdint>

#include "emulator/driver/cuda_abi.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

WARPLOOM_CUDA_API int cuDeviceGet(int* device, int ordinal) {
  if (warploom_emulator_device(ordinal) == nullptr) return abi::kInvalidDevice;
  *device = ordinal;
  return abi::kSuccess;
}

// There is nothing in a context but its device: the handle is the device's number, plus one.
WARPLOOM_CUDA_API int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (warploom_emulator_device(device) == nullptr) return abi::kInvalidDevice;
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDevicePrimaryCtxRelease_v2(int) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuCtxSetCurrent(void* context) {
  return warploom_emulator_set_device(static_cast<int>(reinterpret_cast<intptr_t>(context) - 1));
}

WARPLOOM_CUDA_API int cuCtxGetId(void* context, unsigned long long* number) {
  const auto own = static_cast<unsigned long long>(warploom_emulator_current_device()) + 1;
  *number = context == nullptr ? own : reinterpret_cast<uintptr_t>(context);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxSynchronize() { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuMemAlloc_v2(uint64_t* pointer, std::size_t bytes) {
  void* memory = warploom_emulator_allocate(bytes);
  *pointer = reinterpret_cast<uint64_t>(memory);
  return memory != nullptr ? abi::kSuccess : abi::kOutOfMemory;
}

WARPLOOM_CUDA_API int cuMemFree_v2(uint64_t pointer) {
  return warploom_emulator_release(reinterpret_cast<void*>(pointer));
}

WARPLOOM_CUDA_API int cuMemcpyHtoD_v2(uint64_t destination, const void* source,
                                      std::size_t bytes) {
  return warploom_emulator_copy(nullptr, reinterpret_cast<void*>(destination), source, bytes, true,
                                false);
}

WARPLOOM_CUDA_API int cuMemcpyDtoH_v2(void* destination, uint64_t source, std::size_t bytes) {
  return warploom_emulator_copy(nullptr, destination, reinterpret_cast<const void*>(source), bytes,
                                false, true);
}
