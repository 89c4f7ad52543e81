// Functions of the CUDA libraries that TVM has loaded, which may be the emulated ones.

#ifndef WARPLOOM_LAUNCH_CUDA_LIBRARY_H_
#define WARPLOOM_LAUNCH_CUDA_LIBRARY_H_

#include <dlfcn.h>

namespace warploom {

// nullptr if the library is not loaded, or has none of that name.
template <typename Function>
Function* cuda_function(const char* library, const char* name) {
  void* loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return loaded == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(loaded, name));
}

constexpr const char* kCudaRuntime = "libcudart.so.13";
constexpr const char* kCudaDriver = "libcuda.so.1";

}  // namespace warploom

#endif  // WARPLOOM_LAUNCH_CUDA_LIBRARY_H_
