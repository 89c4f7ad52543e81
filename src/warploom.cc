// Identifies the native library, so that a stale build is noticed before it is trusted.

#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#ifndef WARPLOOM_VERSION
#error "WARPLOOM_VERSION must be defined by the build"
#endif

namespace warploom {

tvm::ffi::String Version() { return WARPLOOM_VERSION; }

}  // namespace warploom

TVM_FFI_DLL_EXPORT_TYPED_FUNC(version, warploom::Version);
