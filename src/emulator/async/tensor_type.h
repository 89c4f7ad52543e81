// The element types of tensor maps, by CUtensorMapDataType.

#ifndef WARPLOOM_EMULATOR_ASYNC_TENSOR_TYPE_H_
#define WARPLOOM_EMULATOR_ASYNC_TENSOR_TYPE_H_

#include <cstdint>

#include "emulator/ptx/types.h"

namespace warploom::emulator {

// Elements that are narrower than a byte move in units of several; those that are expanded have a
// gap behind each unit in shared memory. What is called FTZ does not flush what is loaded, as an
// H200 shows.
struct TensorType {
  Type type;              // kNone: narrower than a byte
  uint8_t bits;
  uint8_t unit_elements = 1;
  uint8_t unit_bytes = 0;         // in global memory; 0: those of the element
  uint8_t unit_shared_bytes = 0;  // in shared memory; the same
  bool round_tf32 = false;

  bool is_expanded() const { return unit_shared_bytes > unit_bytes; }
};

constexpr TensorType kTensorTypes[] = {
    {Type::kU8, 8},
    {Type::kU16, 16},
    {Type::kU32, 32},
    {Type::kS32, 32},
    {Type::kU64, 64},
    {Type::kS64, 64},
    {Type::kF16, 16},
    {Type::kF32, 32},
    {Type::kF64, 64},
    {Type::kBf16, 16},
    {Type::kF32, 32},
    {Type::kF32, 32, 1, 0, 0, true},
    {Type::kF32, 32, 1, 0, 0, true},
    {Type::kNone, 4, 2, 1, 1},     // 16U4_ALIGN8B, .b4x16
    {Type::kNone, 4, 16, 8, 16},   // 16U4_ALIGN16B, .b4x16_p64
    {Type::kNone, 6, 16, 12, 16},  // 16U6_ALIGN16B, .b6x16_p32
};
constexpr int kTensorTypeCount = sizeof(kTensorTypes) / sizeof(kTensorTypes[0]);

// Types that are expanded move rows of so many elements.
constexpr uint32_t kExpandedRow = 128;

constexpr uint8_t kTypePacked4 = 13;    // 16U4_ALIGN8B
constexpr uint8_t kTypeExpanded4 = 14;  // 16U4_ALIGN16B
constexpr uint8_t kTypeExpanded6 = 15;  // 16U6_ALIGN16B

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_TENSOR_TYPE_H_
