#include "emulator/async/tensor_map_encode.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "emulator/async/tensor_map.h"
#include "emulator/async/tensor_type.h"
#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

constexpr uint64_t kMaxExtent = uint64_t{1} << 32;

// By CUtensorMapSwizzle: the width of the swizzle, and its atoms.
constexpr std::pair<uint8_t, uint8_t> kSwizzles[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0},
                                                     {3, 1}, {3, 2}, {3, 3}};

struct Enumerator {
  const char* name;
  int value;
  int count;
};

// A value for a field of fewer bits; what does not fit breaks a rule also when it is clamped.
template <class Field, class Value>
Field clamped(Value value) {
  const auto most = static_cast<int64_t>(std::numeric_limits<Field>::max());
  const auto least = static_cast<int64_t>(std::numeric_limits<Field>::min());
  return static_cast<Field>(std::clamp(static_cast<int64_t>(value), least, most));
}

// What all functions do with what all of them have.
std::string set_common(TensorMapFields& map, const TensorMapArguments& from) {
  if (from.rank == 0 || from.rank > kTensorMapRank) {
    return format("rank %u is not within 1 to 5", from.rank);
  }
  if (from.out128 == nullptr || from.dims == nullptr || from.element_strides == nullptr ||
      (from.strides == nullptr && from.rank > 1)) {
    return "an argument is a null pointer";
  }
  const Enumerator enumerators[] = {
      {"data type", from.data_type, kTensorTypeCount},
      {"interleave", from.interleave, 3},
      {"swizzle", from.swizzle, static_cast<int>(std::size(kSwizzles))},
      {"L2 promotion", from.l2_promotion, 4},
      {"out-of-bounds fill", from.oob_fill, 2},
  };
  for (const Enumerator& each : enumerators) {
    if (each.value < 0 || each.value >= each.count) {
      return format("%s has no value %d", each.name, each.value);
    }
  }
  map.rank = static_cast<uint8_t>(from.rank);
  map.address = from.address;
  map.data_type = static_cast<uint8_t>(from.data_type);
  map.interleave = static_cast<uint8_t>(from.interleave);
  std::tie(map.swizzle, map.swizzle_atomicity) = kSwizzles[from.swizzle];
  map.fill = static_cast<uint8_t>(from.oob_fill);
  for (uint32_t d = 0; d < from.rank; ++d) {
    if (from.dims[d] == 0 || from.dims[d] > kMaxExtent) {
      return format("extent %" PRIu64 " of dimension %u is not within 1 to 2^32", from.dims[d], d);
    }
    map.last_index[d] = static_cast<uint32_t>(from.dims[d] - 1);
    map.step[d] = clamped<uint8_t>(from.element_strides[d]);
    if (d > 0) map.stride_bytes[d - 1] = from.strides[d - 1];
  }
  return "";
}

std::string finish(TensorMapFields& map, const TensorMapArguments& arguments, std::string error) {
  if (error.empty()) error = tensor_map_error(map);
  if (error.empty()) store_tensor_map(map, arguments.out128);
  return error;
}

}  // namespace

std::string encode_tiled(const TensorMapArguments& arguments, const uint32_t* box) {
  TensorMapFields map{};
  std::string error = set_common(map, arguments);
  if (error.empty() && box == nullptr) error = "an argument is a null pointer";
  for (uint32_t d = 0; error.empty() && d < arguments.rank; ++d) {
    map.box[d] = clamped<uint16_t>(box[d]);
  }
  return finish(map, arguments, std::move(error));
}

std::string encode_im2col(const TensorMapArguments& arguments, const int* lower, const int* upper,
                          uint32_t channels, uint32_t pixels) {
  TensorMapFields map{};
  map.mode = TensorMode::kIm2col;
  map.box[0] = clamped<uint16_t>(channels);
  map.box[1] = clamped<uint16_t>(pixels);
  std::string error = set_common(map, arguments);
  if (error.empty() && (lower == nullptr || upper == nullptr)) {
    error = "an argument is a null pointer";
  }
  for (uint32_t i = 0; error.empty() && i + 2 < arguments.rank; ++i) {
    if (lower[i] != int16_t(lower[i]) || upper[i] != int16_t(upper[i])) {
      error = format("the corners %d and %d of the bounding box do not fit into 16 bits", lower[i],
                     upper[i]);
    }
    map.lower[i] = static_cast<int16_t>(lower[i]);
    map.upper[i] = static_cast<int16_t>(upper[i]);
  }
  return finish(map, arguments, std::move(error));
}

std::string encode_im2col_wide(const TensorMapArguments& arguments, int lower, int upper,
                               uint32_t channels, uint32_t pixels, int mode) {
  TensorMapFields map{};
  map.box[0] = clamped<uint16_t>(channels);
  map.box[1] = clamped<uint16_t>(pixels);
  std::string error = set_common(map, arguments);
  if (error.empty() && mode != 0 && mode != 1) error = format("the mode has no value %d", mode);
  if (error.empty() && (lower != int16_t(lower) || upper != int16_t(upper))) {
    error = format("the corners %d and %d of the bounding box do not fit into 16 bits", lower,
                   upper);
  }
  map.mode = mode == 0 ? TensorMode::kIm2colWide : TensorMode::kIm2colWide128;
  map.lower[0] = static_cast<int16_t>(lower);
  map.upper[0] = static_cast<int16_t>(upper);
  return finish(map, arguments, std::move(error));
}

}  // namespace warploom::emulator
