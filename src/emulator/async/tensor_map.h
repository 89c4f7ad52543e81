// Tensor maps: what cuTensorMapEncodeTiled encodes and the copies of boxes that use it (CUDA Driver
// API, "Tensor Map Object Management"; PTX ISA, "Tensor Copies").

#ifndef WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_H_
#define WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_H_

#include <cstdint>
#include <functional>
#include <string>

#include "emulator/async/bulk_copy.h"
#include "emulator/exec/memory.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

constexpr int kTensorMapRank = 5;
constexpr int kTensorMapBytes = 128;

// Dimension 0 is the contiguous one, as in the driver's interface. All counts are of elements.
struct TensorMap {
  uint64_t magic;
  uint64_t address;
  uint64_t stride_bytes[kTensorMapRank - 1];  // of dimensions 1 and up
  uint32_t last_index[kTensorMapRank];        // extent - 1, so that 2^32 fits
  uint16_t count[kTensorMapRank];             // elements of the box that are moved
  uint8_t step[kTensorMapRank];               // distance of these in the tensor
  uint8_t rank;
  Type type;
  uint8_t element_bytes;
  uint8_t swizzle_row_bytes;  // 16 for none
  bool fill_nan;              // out-of-bounds elements are a NaN instead of zero
  bool round_tf32;            // loads round f32 to tf32
  bool gathers;               // dimension 1 is four rows, each with a coordinate of its own
};
static_assert(sizeof(TensorMap) <= kTensorMapBytes);

// The arguments of cuTensorMapEncodeTiled, in its order. Returns a CUresult: 0, 1 for an invalid
// value or 801 for one that is legal but not supported here. `why` receives the reason.
int encode_tensor_map(void* out128, int data_type, uint32_t rank, uint64_t address,
                      const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                      const uint32_t* element_strides, int interleave, int swizzle,
                      int l2_promotion, int oob_fill, std::string* why = nullptr);

// The map that these 128 bytes hold; a Fault if they hold none.
const TensorMap& tensor_map_at(const void* bytes);

// The map as tile::gather4 and tile::scatter4 use it: coordinates are that of dimension 0 and those
// of four rows. A Fault unless the map has two dimensions and boxes of one row.
TensorMap gather4(const TensorMap& map);

// Bytes of the box, whether in bounds or not: what a load adds to complete-tx.
uint32_t tensor_map_box_bytes(const TensorMap& map);

// Distance of the box's rows in shared memory: narrow rows are as far apart as the swizzle is wide,
// and what is between them stays as it is.
uint32_t tensor_map_row_pitch(const TensorMap& map);

// Bytes of shared memory from the first row of the box to the end of the last row's pitch.
uint32_t tensor_map_footprint(const TensorMap& map);

// The part of one row of a box that lies in the tensor.
struct TensorRow {
  uint32_t shared;   // its first byte in the box, before the swizzle
  uint32_t bytes;
  uint64_t address;  // in global memory
};

// Calls visit for every row of the box at `coordinates` that is not out of bounds.
void tensor_rows(const TensorMap& map, const int32_t* coordinates,
                 const std::function<void(const TensorRow&)>& visit);

// Moves the box at `coordinates` (`rank` of them, dimension 0 first, any sign) to shared memory;
// for a multicast, once per CTA. The offset is a multiple of 128.
void tensor_load(const TensorMap& map, const int32_t* coordinates, const GlobalMemory& global,
                 const SharedMemory& shared, uint32_t offset);

// The other way round; elements out of bounds stay in shared memory.
void tensor_store(const TensorMap& map, const int32_t* coordinates, const GlobalMemory& global,
                  const SharedMemory& shared, uint32_t offset, Reduction reduction);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_H_
