// Registers options of TVM's PassContext, so that PassContext(config={"warploom.stages": 3}) is
// checked as TVM's own options are.
//
// TVM exports the function from its compiler library, but has no ffi function for it; all types of
// its signature are those of tvm_ffi and of the standard library.

#include <dlfcn.h>
#include <tvm/ffi/any.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <functional>

namespace warploom {
namespace {

using tvm::ffi::Any;
using Legalize = std::function<Any(Any)>;
using Register = void (*)(const char*, tvm::ffi::String, Legalize);

constexpr const char* kRegister =
    "_ZN3tvm9transform11PassContext20RegisterConfigOptionEPKcNS_3ffi6StringE"
    "St8functionIFNS4_3AnyES7_EE";

}  // namespace

// Registers `name`. `legalize` gets a value that a user has set, and returns the one to keep or
// raises; `compiler` is the path of TVM's compiler library, which is loaded already.
void RegisterPassOption(tvm::ffi::String compiler, tvm::ffi::String name, tvm::ffi::String type,
                        tvm::ffi::Function legalize) {
  void* library = dlopen(compiler.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  void* found = library == nullptr ? nullptr : dlsym(library, kRegister);
  if (found == nullptr) {
    TVM_FFI_THROW(RuntimeError) << compiler << " does not export RegisterConfigOption";
  }
  auto call = [legalize](Any value) -> Any { return legalize(value); };
  reinterpret_cast<Register>(found)(name.c_str(), type, call);
}

}  // namespace warploom

TVM_FFI_DLL_EXPORT_TYPED_FUNC(register_pass_option, warploom::RegisterPassOption);
