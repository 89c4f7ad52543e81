/*!
 * \file ffi.cc
 * \brief Exposes the cubin reader to Python through tvm_ffi.
 */
#include <cstdint>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "elf_view.h"
#include "kernel_info.h"

namespace warploom {
namespace cubin {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Map;
using tvm::ffi::String;

Array<Map<String, Any>> Kernels(const tvm::ffi::Bytes& image) {
  auto integer = [](uint64_t value) { return static_cast<int64_t>(value); };
  Array<Map<String, Any>> result;
  try {
    for (const KernelInfo& kernel : ReadKernels({image.data(), image.size()})) {
      Map<String, Any> fields;
      fields.Set("name", String(kernel.name));
      fields.Set("registers", integer(kernel.registers));
      fields.Set("shared_bytes", integer(kernel.shared_bytes));
      fields.Set("frame_bytes", integer(kernel.frame_bytes));
      fields.Set("stack_bytes", integer(kernel.stack_bytes));
      fields.Set("max_threads", integer(kernel.max_threads));
      fields.Set("barriers", integer(kernel.barriers));
      fields.Set("code_bytes", integer(kernel.code_bytes));
      fields.Set("instructions", integer(kernel.instructions()));
      result.push_back(fields);
    }
  } catch (const CubinError& error) {
    TVM_FFI_THROW(ValueError) << error.what();
  }
  return result;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("warploom.cubin.kernels", Kernels,
                                        "Read the kernels of a cubin given as bytes.");
}

}  // namespace
}  // namespace cubin
}  // namespace warploom
