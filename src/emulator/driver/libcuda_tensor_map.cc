// libcuda.so.1 of the emulator: the functions that make tensor maps.

#include <cstdint>
#include <string>

#include "emulator/async/tensor_map_encode.h"
#include "emulator/base/device.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

TensorMapArguments common(void* map, int data_type, unsigned rank, void* address,
                          const uint64_t* dims, const uint64_t* strides, const uint32_t* steps,
                          int interleave, int swizzle, int l2_promotion, int oob_fill) {
  return {map,   data_type,  rank,    reinterpret_cast<uint64_t>(address), dims, strides,
          steps, interleave, swizzle, l2_promotion,                        oob_fill};
}

// `encode` returns what is wrong.
template <class Encode>
int result(const char* function, Encode encode) {
  return guarded(abi::kInvalidValue, [&] {
    const std::string error = encode();
    if (error.empty()) return abi::kSuccess;
    Session::set_error(std::string(function) + ": " + error);
    return abi::kInvalidValue;
  });
}

std::string wide_problem() {
  const Device* device = find_device(Session::current_device());
  if (device == nullptr) return "there is no emulated device";
  if (device->major >= 10) return "";
  return "im2col::w exists from compute capability 10.0 on; the current device is " +
         std::string(device->arch);
}

}  // namespace

WARPLOOM_CUDA_API int cuTensorMapEncodeTiled(void* map, int data_type, unsigned rank, void* address,
                                             const uint64_t* dims, const uint64_t* strides,
                                             const uint32_t* box, const uint32_t* element_strides,
                                             int interleave, int swizzle, int l2_promotion,
                                             int oob_fill) {
  TensorMapArguments arguments = common(map, data_type, rank, address, dims, strides,
                                        element_strides, interleave, swizzle, l2_promotion,
                                        oob_fill);
  return result("cuTensorMapEncodeTiled", [&] { return encode_tiled(arguments, box); });
}

WARPLOOM_CUDA_API int cuTensorMapEncodeIm2col(void* map, int data_type, unsigned rank,
                                              void* address, const uint64_t* dims,
                                              const uint64_t* strides, const int* lower,
                                              const int* upper, uint32_t channels, uint32_t pixels,
                                              const uint32_t* element_strides, int interleave,
                                              int swizzle, int l2_promotion, int oob_fill) {
  TensorMapArguments arguments = common(map, data_type, rank, address, dims, strides,
                                        element_strides, interleave, swizzle, l2_promotion,
                                        oob_fill);
  return result("cuTensorMapEncodeIm2col",
                [&] { return encode_im2col(arguments, lower, upper, channels, pixels); });
}

WARPLOOM_CUDA_API int cuTensorMapEncodeIm2colWide(void* map, int data_type, unsigned rank,
                                                  void* address, const uint64_t* dims,
                                                  const uint64_t* strides, int lower, int upper,
                                                  uint32_t channels, uint32_t pixels,
                                                  const uint32_t* element_strides, int interleave,
                                                  int mode, int swizzle, int l2_promotion,
                                                  int oob_fill) {
  TensorMapArguments arguments = common(map, data_type, rank, address, dims, strides,
                                        element_strides, interleave, swizzle, l2_promotion,
                                        oob_fill);
  return result("cuTensorMapEncodeIm2colWide", [&] {
    std::string problem = wide_problem();
    return problem.empty()
               ? encode_im2col_wide(arguments, lower, upper, channels, pixels, mode)
               : problem;
  });
}
