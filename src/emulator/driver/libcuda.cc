// libcuda.so.1 of the emulator: the functions of the driver API that TVM's CUDA runtime calls.
//
// An error's name is the channel by which a reason reaches the user: TVM puts what cuGetErrorName
// returns into the exception it raises.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "emulator/async/tensor_map.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/device.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

WARPLOOM_CUDA_API int cuInit(unsigned) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuDriverGetVersion(int* version) {
  *version = abi::kDriverVersion;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetCount(int* count) {
  *count = 1;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetName(char* name, int length, int device) {
  if (device != 0) return abi::kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", kDeviceName);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuGetErrorName(int error, const char** text) {
  // TVM reads the text before it calls the driver again.
  static thread_local std::string message;
  message = error == abi::kSuccess ? "CUDA_SUCCESS" : Session::instance().error();
  *text = message.c_str();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuGetErrorString(int error, const char** text) {
  return cuGetErrorName(error, text);
}

WARPLOOM_CUDA_API int cuModuleLoadData(void** module, const void* image) {
  *module = Session::instance().load(static_cast<const char*>(image));
  return *module != nullptr ? abi::kSuccess : abi::kInvalidPtx;
}

WARPLOOM_CUDA_API int cuModuleUnload(void* module) {
  Session::instance().unload(static_cast<LoadedModule*>(module));
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto* loaded = static_cast<const LoadedModule*>(module);
  const Program* program = loaded->find(name);
  if (program == nullptr) {
    Session::instance().set_error(std::string("the module has no kernel '") + name + "'");
    return abi::kNotFound;
  }
  // Function handles have no counterpart that frees them; a program has at most one handle.
  static std::map<std::pair<const LoadedModule*, const Program*>, KernelHandle> handles;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  *function = &handles.try_emplace({loaded, program}, KernelHandle{loaded, program}).first->second;
  return abi::kSuccess;
}

// Limits of shared memory are checked at the launch.
WARPLOOM_CUDA_API int cuFuncSetAttribute(void*, int, int) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuLaunchKernelEx(const abi::LaunchConfig* config, void* function,
                                       void** arguments, void**) {
  LaunchRequest request;
  std::memcpy(request.grid.data(), config->grid, sizeof(config->grid));
  std::memcpy(request.block.data(), config->block, sizeof(config->block));
  request.dynamic_shared = config->shared_bytes;
  request.arguments = arguments;
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const abi::LaunchAttribute& attribute = config->attributes[i];
    if (attribute.id != abi::kAttributeClusterDimension) continue;
    std::memcpy(request.cluster.data(), attribute.value.dimension, sizeof(config->grid));
  }
  const auto* kernel = static_cast<const KernelHandle*>(function);
  return Session::instance().launch(*kernel, request) ? abi::kSuccess : abi::kLaunchFailed;
}

WARPLOOM_CUDA_API int cuTensorMapEncodeTiled(void* map, int data_type, unsigned rank, void* address,
                                             const uint64_t* dims, const uint64_t* strides,
                                             const uint32_t* box, const uint32_t* element_strides,
                                             int interleave, int swizzle, int l2_promotion,
                                             int oob_fill) {
  std::string why;
  int code = encode_tensor_map(map, data_type, rank, reinterpret_cast<uint64_t>(address), dims,
                               strides, box, element_strides, interleave, swizzle, l2_promotion,
                               oob_fill, &why);
  if (code != abi::kSuccess) Session::instance().set_error("cuTensorMapEncodeTiled: " + why);
  return code;
}

WARPLOOM_CUDA_API void* warploom_emulator_allocate(std::size_t bytes) {
  return Session::instance().allocate(bytes);
}

WARPLOOM_CUDA_API void warploom_emulator_release(void* pointer) {
  Session::instance().release(pointer);
}

WARPLOOM_CUDA_API std::size_t warploom_emulator_allocated() {
  return Session::instance().allocated();
}

// For the Python face.
WARPLOOM_CUDA_API void warploom_emulator_set_seed(uint64_t seed) {
  Session::instance().set_seed(seed);
}

WARPLOOM_CUDA_API void warploom_emulator_set_instruction_limit(uint64_t limit) {
  Session::instance().set_instruction_limit(limit);
}

WARPLOOM_CUDA_API uint64_t warploom_emulator_instructions() {
  return Session::instance().instructions();
}
