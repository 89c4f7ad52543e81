// The driver's functions that make tensor maps: cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col and
// cuTensorMapEncodeIm2colWide.

#ifndef WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_ENCODE_H_
#define WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_ENCODE_H_

#include <cstdint>
#include <string>

namespace warploom::emulator {

// The arguments that all of them have. Enumerators are those of cuda.h.
struct TensorMapArguments {
  void* out128;
  int data_type;
  uint32_t rank;
  uint64_t address;
  const uint64_t* dims;
  const uint64_t* strides;
  const uint32_t* element_strides;
  int interleave;
  int swizzle;
  int l2_promotion;
  int oob_fill;
};

// These write the map and return an empty string, or say why there is none.
std::string encode_tiled(const TensorMapArguments& arguments, const uint32_t* box);

// Corners are those of W, H and D, as many as the tensor has.
std::string encode_im2col(const TensorMapArguments& arguments, const int* lower, const int* upper,
                          uint32_t channels, uint32_t pixels);

// Corners are those of W. `mode` is a CUtensorMapIm2ColWideMode.
std::string encode_im2col_wide(const TensorMapArguments& arguments, int lower, int upper,
                               uint32_t channels, uint32_t pixels, int mode);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_ENCODE_H_
