// libcuda.so.1 of the emulator: contexts.
//
// There is nothing in a context but its device. The handle of a primary context is the device's
// number, plus one; other contexts have handles of their own.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/base/device.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/handles.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

struct Context {
  int device;
};

Handles<Context>& contexts() {
  static auto* handles = new Handles<Context>;
  return *handles;
}

// The last one is current; null where a program has made none current. Programs that choose a
// device through the runtime have none in it.
thread_local std::vector<void*> stack;

void* primary(int device) { return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1); }

// -1 if there is no such context.
int device_of(void* context) {
  const auto number = reinterpret_cast<intptr_t>(context) - 1;
  if (number >= 0 && number < device_count()) return static_cast<int>(number);
  std::shared_ptr<Context> own = contexts().find(context);
  return own == nullptr ? -1 : own->device;
}

int invalid() { return fail(abi::kInvalidContext, "there is no such context"); }

int use_top() {
  if (!stack.empty() && stack.back() != nullptr) {
    Session::set_current_device(device_of(stack.back()));
  }
  return abi::kSuccess;
}

int make(void** context, int device) {
  if (context == nullptr) return abi::kInvalidValue;
  if (find_device(device) == nullptr) return abi::kInvalidDevice;
  return guarded(abi::kOutOfMemory, [&] {
    *context = contexts().add(std::make_shared<Context>(Context{device}));
    stack.push_back(*context);
    return use_top();
  });
}

}  // namespace

WARPLOOM_CUDA_API int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (find_device(device) == nullptr) return abi::kInvalidDevice;
  if (context == nullptr) return abi::kInvalidValue;
  *context = primary(device);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDevicePrimaryCtxRelease_v2(int device) {
  return find_device(device) == nullptr ? abi::kInvalidDevice : abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDevicePrimaryCtxReset_v2(int device) {
  return find_device(device) == nullptr ? abi::kInvalidDevice : abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) {
  return find_device(device) == nullptr ? abi::kInvalidDevice : abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (find_device(device) == nullptr) return abi::kInvalidDevice;
  if (flags != nullptr) *flags = 0;
  if (active != nullptr) *active = 1;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxCreate_v2(void** context, unsigned, int device) {
  return make(context, device);
}

WARPLOOM_CUDA_API int cuCtxCreate_v3(void** context, void*, int, unsigned, int device) {
  return make(context, device);
}

WARPLOOM_CUDA_API int cuCtxCreate_v4(void** context, void*, unsigned, int device) {
  return make(context, device);
}

WARPLOOM_CUDA_API int cuCtxDestroy_v2(void* context) {
  return guarded(abi::kInvalidContext, [&] {
    if (contexts().remove(context) == nullptr) return invalid();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    return use_top();
  });
}

WARPLOOM_CUDA_API int cuCtxPushCurrent_v2(void* context) {
  return guarded(abi::kOutOfMemory, [&] {
    if (device_of(context) < 0) return invalid();
    stack.push_back(context);
    return use_top();
  });
}

WARPLOOM_CUDA_API int cuCtxPopCurrent_v2(void** context) {
  if (stack.empty()) return invalid();
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return use_top();
}

WARPLOOM_CUDA_API int cuCtxSetCurrent(void* context) {
  return guarded(abi::kOutOfMemory, [&] {
    if (context != nullptr && device_of(context) < 0) return invalid();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return use_top();
  });
}

WARPLOOM_CUDA_API int cuCtxGetCurrent(void** context) {
  if (context == nullptr) return abi::kInvalidValue;
  *context = stack.empty() ? nullptr : stack.back();
  // cudaSetDevice of the runtime leaves the primary context of its device.
  if (*context != nullptr && device_of(*context) != Session::current_device()) {
    *context = primary(Session::current_device());
  }
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxGetDevice(int* device) {
  if (device == nullptr) return abi::kInvalidValue;
  *device = Session::current_device();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxGetDevice_v2(int* device, void* context) {
  if (context == nullptr) return cuCtxGetDevice(device);
  if (device == nullptr) return abi::kInvalidValue;
  const int found = device_of(context);
  if (found < 0) return invalid();
  *device = found;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxGetId(void* context, unsigned long long* number) {
  if (number == nullptr) return abi::kInvalidValue;
  void* asked = context != nullptr ? context : primary(Session::current_device());
  if (device_of(asked) < 0) return invalid();
  *number = reinterpret_cast<uintptr_t>(asked);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxGetApiVersion(void* context, unsigned* version) {
  if (context != nullptr && device_of(context) < 0) return invalid();
  if (version == nullptr) return abi::kInvalidValue;
  *version = abi::kDriverVersion;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxGetFlags(unsigned* flags) {
  if (flags == nullptr) return abi::kInvalidValue;
  *flags = 0;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxSetFlags(unsigned) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return abi::kSuccess;
}

// Stacks, heaps and buffers of printf have sizes of their own.
WARPLOOM_CUDA_API int cuCtxSetLimit(int, std::size_t) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuCtxGetLimit(std::size_t* value, int limit) {
  if (value == nullptr) return abi::kInvalidValue;
  constexpr int kPrintf = 1, kHeap = 2;
  *value = limit == kPrintf ? std::size_t{1} << 20 : limit == kHeap ? std::size_t{8} << 20 : 1024;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxGetCacheConfig(int* config) {
  if (config == nullptr) return abi::kInvalidValue;
  *config = 0;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuCtxSetCacheConfig(int) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuCtxResetPersistingL2Cache() { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuCtxSynchronize() { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuCtxSynchronize_v2(void* context) {
  return context == nullptr || device_of(context) >= 0 ? abi::kSuccess : invalid();
}
