#include "emulator/async/tensor_map_replace.h"

#include <cinttypes>
#include <iterator>

#include "emulator/async/tensor_type.h"
#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// CUtensorMapDataType by the number that PTX gives a type.
constexpr uint8_t kTypes[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12, 13, 14, 15};
static_assert(std::size(kTypes) == kTensorTypeCount);

uint8_t within(const char* name, uint64_t value, uint64_t most) {
  if (value > most) {
    fault("tensormap.replace: %" PRIu64 " is no value of .%s, which has 0 to %" PRIu64, value, name,
          most);
  }
  return static_cast<uint8_t>(value);
}

}  // namespace

void replace_field(TensorMapFields& map, TensorMapField field, uint32_t dimension,
                   uint64_t value) {
  switch (field) {
    case TensorMapField::kAddress:
      map.address = value;
      break;
    case TensorMapField::kRank:
      map.rank = static_cast<uint8_t>(within("rank", value, kTensorMapRank - 1) + 1);
      break;
    case TensorMapField::kBox:
      if (value == 0 || value > 256) {
        fault("tensormap.replace: %" PRIu64 " is no value of .box_dim, which has 1 to 256", value);
      }
      map.box[dimension] = static_cast<uint16_t>(value);
      break;
    case TensorMapField::kExtent:
      // 0 stands for 2^32.
      map.last_index[dimension] = static_cast<uint32_t>(value) - 1;
      break;
    case TensorMapField::kStride:
      map.stride_bytes[dimension] = value;
      break;
    case TensorMapField::kStep:
      map.step[dimension] = within("element_stride", value, 8);
      break;
    case TensorMapField::kType:
      map.data_type = kTypes[within("elemtype", value, std::size(kTypes) - 1)];
      break;
    case TensorMapField::kInterleave:
      map.interleave = within("interleave_layout", value, 2);
      break;
    case TensorMapField::kSwizzle:
      map.swizzle = within("swizzle_mode", value, 3);
      break;
    case TensorMapField::kAtomicity:
      map.swizzle_atomicity = within("swizzle_atomicity", value, 3);
      break;
    case TensorMapField::kFill:
      map.fill = within("fill_mode", value, 1);
      break;
  }
}

}  // namespace warploom::emulator
