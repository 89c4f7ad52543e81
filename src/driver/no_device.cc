// A CUDA driver for machines that have none: it loads, and it reports that there is no device.
//
// TVM calls the CUDA compiler only if libtvm_runtime_cuda.so is loaded, and that library needs
// libcuda.so.1. Without a driver TVM keeps CUDA source and exports no cubin. This library takes
// the place of libcuda.so.1 (its SONAME), so that a build machine can compile for a GPU it does
// not have. Every call that would need a device returns CUDA_ERROR_NO_DEVICE, as the real driver
// does where no GPU is present, and nothing is ever executed.
//
// The functions have the C linkage of the driver API but take no typed parameters: cuda.h is not
// needed to build, and callers pass arguments in registers or on a stack that they clean up.

#include <cstring>

#define WARPLOOM_DRIVER_API extern "C" __attribute__((visibility("default")))

namespace {

// Values of CUresult that the driver API documents.
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kNoDevice = 100;

// Major version 13, as libcudart.so.13 asks for. Only tells the runtime that it may go on to ask
// for devices.
constexpr int kDriverVersion = 13000;

}  // namespace

// What libtvm_runtime_cuda.so imports; its load fails if one is missing.
#define WARPLOOM_NO_DEVICE(name) \
  WARPLOOM_DRIVER_API int name() { return kNoDevice; }
WARPLOOM_NO_DEVICE(cuInit)
WARPLOOM_NO_DEVICE(cuDeviceGetName)
WARPLOOM_NO_DEVICE(cuFuncSetAttribute)
WARPLOOM_NO_DEVICE(cuLaunchKernelEx)
WARPLOOM_NO_DEVICE(cuModuleGetFunction)
WARPLOOM_NO_DEVICE(cuModuleLoadData)
WARPLOOM_NO_DEVICE(cuModuleUnload)
WARPLOOM_NO_DEVICE(cuTensorMapEncodeTiled)
#undef WARPLOOM_NO_DEVICE

WARPLOOM_DRIVER_API int cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = kDriverVersion;
  return kSuccess;
}

WARPLOOM_DRIVER_API int cuDeviceGetCount(int* count) {
  if (count == nullptr) return kInvalidValue;
  *count = 0;
  return kNoDevice;
}

WARPLOOM_DRIVER_API int cuGetErrorName(int error, const char** text) {
  *text = error == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}

WARPLOOM_DRIVER_API int cuGetErrorString(int error, const char** text) {
  *text = error == kNoDevice ? "no CUDA driver is installed; this one has no devices"
                             : "unknown error of a driver that has no devices";
  return kSuccess;
}

// libcudart asks for some hundred functions at start-up. All it may get from here is the answer
// "no device", except from the few functions that have to fill in a result.
WARPLOOM_DRIVER_API int cuGetProcAddress_v2(const char* symbol, void** function, int,
                                            unsigned long long, int* status) {
  struct Entry {
    const char* name;
    void* function;
  };
  static const Entry entries[] = {
      {"cuDriverGetVersion", reinterpret_cast<void*>(&cuDriverGetVersion)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(&cuDeviceGetCount)},
      {"cuGetErrorName", reinterpret_cast<void*>(&cuGetErrorName)},
      {"cuGetErrorString", reinterpret_cast<void*>(&cuGetErrorString)},
      {"cuGetProcAddress", reinterpret_cast<void*>(&cuGetProcAddress_v2)},
  };
  if (symbol == nullptr || function == nullptr) return kInvalidValue;
  *function = reinterpret_cast<void*>(&cuInit);
  for (const Entry& entry : entries) {
    if (std::strcmp(symbol, entry.name) == 0) *function = entry.function;
  }
  if (status != nullptr) *status = 0;  // CU_GET_PROC_ADDRESS_SUCCESS
  return kSuccess;
}

WARPLOOM_DRIVER_API int cuGetProcAddress(const char* symbol, void** function, int version,
                                         unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
