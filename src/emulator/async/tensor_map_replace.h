// tensormap.replace: one field of a tensor map (PTX ISA, "tensormap.replace").

#ifndef WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_REPLACE_H_
#define WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_REPLACE_H_

#include <cstdint>

#include "emulator/async/tensor_map.h"

namespace warploom::emulator {

enum class TensorMapField : uint8_t {
  kAddress,
  kRank,
  kBox,
  kExtent,
  kStride,
  kStep,
  kType,
  kInterleave,
  kSwizzle,
  kAtomicity,
  kFill,
};

// As PTX encodes the value; `dimension` is the ordinal of the fields that have one. A Fault if the
// field cannot hold the value. Whether the map is valid is seen when it is used: several fields may
// have to change.
void replace_field(TensorMapFields& map, TensorMapField field, uint32_t dimension, uint64_t value);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_REPLACE_H_
