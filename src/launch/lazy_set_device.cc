// Makes a device current only where it is not: the host code of each launch asks for it.
//
// The CUDA runtime takes longer to make a device current that is current already than to tell so.
// Contexts can change behind the runtime (cuCtxSetCurrent, cudaDeviceReset); so what was current
// after the last call is compared by the number of its context, which no later context gets.

#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstdint>

#include "launch/cuda_library.h"

namespace warploom {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::PackedArgs;

// Of DLDeviceType.
constexpr int64_t kCuda = 2;

using GetContextNumber = int(void* context, unsigned long long* number);

// What this thread made current last.
struct Current {
  int64_t device = -1;
  unsigned long long context = 0;
};

thread_local Current last;

bool is_integer(const TVMFFIAny& argument) { return argument.type_index == kTVMFFIInt; }

// The function itself if the driver cannot tell contexts apart.
Function lazy_set_device(Function set_device) {
  const auto get_number = cuda_function<GetContextNumber>(kCudaDriver, "cuCtxGetId");
  if (get_number == nullptr) return set_device;
  return Function::FromPacked([set_device, get_number](PackedArgs packed, Any* result) {
    const auto* arguments = reinterpret_cast<const TVMFFIAny*>(packed.data());
    const bool is_cuda = packed.size() == 2 && is_integer(arguments[0]) &&
                         is_integer(arguments[1]) && arguments[0].v_int64 == kCuda;
    unsigned long long context = 0;  // of the thread, by nullptr
    if (is_cuda && last.device == arguments[1].v_int64 && get_number(nullptr, &context) == 0 &&
        context == last.context) {
      return;
    }
    set_device.CallPacked(packed, result);
    if (!is_cuda) return;
    const bool is_known = get_number(nullptr, &last.context) == 0;
    last.device = is_known ? arguments[1].v_int64 : -1;
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "warploom.launch.lazy_set_device", lazy_set_device,
      "__tvm_set_device that does nothing where that is done already, given that function.");
}

}  // namespace
}  // namespace warploom
