// Encoding: the arguments of the driver's function against its rules.

#include "emulator/async/tensor_map.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

namespace warploom::emulator {
namespace {

constexpr uint64_t kMagic = 0x70616d726f736e74;  // "tnsormap"
constexpr int kSuccess = 0;         // CUDA_SUCCESS
constexpr int kInvalidValue = 1;    // CUDA_ERROR_INVALID_VALUE
constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

constexpr uint64_t kChunk = 16;
constexpr uint64_t kMaxExtent = uint64_t{1} << 32;
constexpr uint64_t kMaxStride = uint64_t{1} << 40;
constexpr uint32_t kMaxBox = 256;
constexpr uint32_t kMaxStep = 8;

// By CUtensorMapDataType. The values above are narrower than a byte. Those that are called FTZ do
// not flush what is loaded, as an H200 shows.
struct DataType {
  Type type;
  uint8_t bytes;
  bool round_tf32 = false;
};
constexpr DataType kDataTypes[] = {
    {Type::kU8, 1},  {Type::kU16, 2}, {Type::kU32, 4}, {Type::kS32, 4}, {Type::kU64, 8},
    {Type::kS64, 8}, {Type::kF16, 2}, {Type::kF32, 4}, {Type::kF64, 8}, {Type::kBf16, 2},
    {Type::kF32, 4}, {Type::kF32, 4, true}, {Type::kF32, 4, true},
};
constexpr int kSupportedDataTypes = sizeof(kDataTypes) / sizeof(kDataTypes[0]);
constexpr int kDataTypeCount = 16;

// By CUtensorMapSwizzle; those above permute chunks of 32 or 64 bytes.
constexpr uint8_t kSwizzleRowBytes[] = {16, 32, 64, 128};
constexpr int kSupportedSwizzles = sizeof(kSwizzleRowBytes);
constexpr int kSwizzleCount = 7;

struct Refusal {
  int code;
  std::string reason;
};

[[noreturn]] void invalid(std::string reason) { throw Refusal{kInvalidValue, std::move(reason)}; }
[[noreturn]] void unsupported(std::string reason) {
  throw Refusal{kNotSupported, std::move(reason)};
}

// An enumerator with `supported` of `count` values.
void check_enumerator(const char* name, int value, int supported, int count) {
  if (value < 0 || value >= count) invalid(format("%s has no value %d", name, value));
  if (value >= supported) unsupported(format("%s %d is not supported", name, value));
}

void set_tensor(TensorMap& map, uint64_t address, const uint64_t* dims, const uint64_t* strides) {
  if (address % kChunk != 0) {
    invalid(format("the address 0x%" PRIx64 " is no multiple of %" PRIu64, address, kChunk));
  }
  map.address = address;
  for (int d = 0; d < map.rank; ++d) {
    if (dims[d] == 0 || dims[d] > kMaxExtent) {
      invalid(format("extent %" PRIu64 " of dimension %d is not within 1 to 2^32", dims[d], d));
    }
    map.last_index[d] = static_cast<uint32_t>(dims[d] - 1);
    if (d == 0) continue;
    const uint64_t stride = strides[d - 1];
    if (stride % kChunk != 0 || stride >= kMaxStride) {
      invalid(format("stride %" PRIu64 " of dimension %d is no multiple of 16 bytes below 2^40",
                     stride, d));
    }
    map.stride_bytes[d - 1] = stride;
  }
}

void set_box(TensorMap& map, const uint32_t* box, const uint32_t* element_strides) {
  for (int d = 0; d < map.rank; ++d) {
    if (box[d] == 0 || box[d] > kMaxBox) {
      invalid(format("box extent %u of dimension %d is not within 1 to %u", box[d], d, kMaxBox));
    }
    if (element_strides[d] == 0 || element_strides[d] > kMaxStep) {
      invalid(format("element stride %u of dimension %d is not within 1 to %u", element_strides[d],
                     d, kMaxStep));
    }
    // Without interleave, dimension 0 is always dense. Elsewhere the box counts what is skipped.
    const uint32_t step = d == 0 ? 1 : element_strides[d];
    map.step[d] = static_cast<uint8_t>(step);
    map.count[d] = static_cast<uint16_t>((box[d] + step - 1) / step);
  }
  const uint32_t row = box[0] * map.element_bytes;
  if (row % kChunk != 0) invalid(format("a box row of %u bytes is no multiple of 16", row));
  if (map.swizzle_row_bytes == kChunk) return;
  if (row > map.swizzle_row_bytes) {
    invalid(format("a box row of %u bytes exceeds the swizzle of %u", row, map.swizzle_row_bytes));
  }
}

}  // namespace

int encode_tensor_map(void* out128, int data_type, uint32_t rank, uint64_t address,
                      const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                      const uint32_t* element_strides, int interleave, int swizzle,
                      int l2_promotion, int oob_fill, std::string* why) {
  try {
    if (rank == 0 || rank > kTensorMapRank) invalid(format("rank %u is not within 1 to 5", rank));
    if (out128 == nullptr || dims == nullptr || box == nullptr || element_strides == nullptr ||
        (strides == nullptr && rank > 1)) {
      invalid("an argument is a null pointer");
    }
    check_enumerator("data type", data_type, kSupportedDataTypes, kDataTypeCount);
    check_enumerator("interleave", interleave, 1, 3);
    check_enumerator("swizzle", swizzle, kSupportedSwizzles, kSwizzleCount);
    check_enumerator("L2 promotion", l2_promotion, 4, 4);
    check_enumerator("out-of-bounds fill", oob_fill, 2, 2);
    TensorMap map{};
    map.magic = kMagic;
    map.rank = static_cast<uint8_t>(rank);
    map.type = kDataTypes[data_type].type;
    map.element_bytes = kDataTypes[data_type].bytes;
    map.round_tf32 = kDataTypes[data_type].round_tf32;
    map.swizzle_row_bytes = kSwizzleRowBytes[swizzle];
    map.fill_nan = oob_fill != 0;
    if (map.fill_nan && !is_float(map.type)) invalid("only floating-point types have a NaN");
    set_tensor(map, address, dims, strides);
    set_box(map, box, element_strides);
    std::memset(out128, 0, kTensorMapBytes);
    std::memcpy(out128, &map, sizeof(map));
    return kSuccess;
  } catch (const Refusal& refusal) {
    if (why != nullptr) *why = refusal.reason;
    return refusal.code;
  }
}

const TensorMap& tensor_map_at(const void* bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  if (address % alignof(TensorMap) != 0) {
    fault("the tensor map at 0x%" PRIxPTR " is misaligned: PTX wants a multiple of 64", address);
  }
  const auto* map = static_cast<const TensorMap*>(bytes);
  if (map->magic != kMagic) {
    fault("the 128 bytes at 0x%" PRIxPTR " are no tensor map made by cuTensorMapEncodeTiled",
          address);
  }
  return *map;
}

uint32_t tensor_map_row_pitch(const TensorMap& map) {
  const uint32_t row = uint32_t{map.count[0]} * map.element_bytes;
  return std::max(row, map.swizzle_row_bytes > kChunk ? uint32_t{map.swizzle_row_bytes} : 0);
}

uint32_t tensor_map_footprint(const TensorMap& map) {
  uint32_t bytes = tensor_map_row_pitch(map);
  for (int d = 1; d < map.rank; ++d) bytes *= map.count[d];
  return bytes;
}

TensorMap gather4(const TensorMap& map) {
  if (map.rank != 2 || map.count[1] != 1) {
    fault("tile::gather4 and tile::scatter4 take tensor maps of two dimensions with boxes of one "
          "row; this one has %d dimensions and %u rows",
          map.rank, map.rank < 2 ? 1u : map.count[1]);
  }
  TensorMap result = map;
  result.count[1] = 4;
  result.gathers = true;
  return result;
}

uint32_t tensor_map_box_bytes(const TensorMap& map) {
  uint32_t bytes = map.element_bytes;
  for (int d = 0; d < map.rank; ++d) bytes *= map.count[d];
  return bytes;
}

}  // namespace warploom::emulator
