// Tensor maps: the 128 bytes that describe a tensor and the boxes of it that are copied (CUDA
// Driver API, "Tensor Map Object Management"; PTX ISA, "Tensors").

#ifndef WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_H_
#define WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_H_

#include <cstdint>
#include <string>

#include "emulator/ptx/types.h"

namespace warploom::emulator {

constexpr int kTensorMapRank = 5;
constexpr int kTensorMapBytes = 128;

enum class TensorMode : uint8_t { kTiled, kIm2col, kIm2colWide, kIm2colWide128 };

// What the 128 bytes hold: the driver's arguments, of which tensormap.replace changes single ones.
// Dimension 0 is the contiguous one, as in the driver's interface.
struct TensorMapFields {
  uint64_t magic;
  uint64_t address;
  uint64_t stride_bytes[kTensorMapRank - 1];  // of dimensions 1 and up
  uint32_t last_index[kTensorMapRank];        // extent - 1, so that 2^32 fits
  uint16_t box[kTensorMapRank];               // of im2col: channels and pixels
  uint8_t step[kTensorMapRank];               // element strides
  uint8_t rank;
  TensorMode mode;
  uint8_t data_type;          // CUtensorMapDataType
  uint8_t interleave;         // CUtensorMapInterleave
  uint8_t swizzle;            // none, 32, 64 or 128 bytes
  uint8_t swizzle_atomicity;  // 16 bytes, 32, 32 with halves of 16 swapped, 64
  uint8_t fill;               // CUtensorMapFloatOOBfill
  int16_t lower[kTensorMapRank - 2];  // corners of the bounding box of im2col: W, H, D
  int16_t upper[kTensorMapRank - 2];
};
static_assert(sizeof(TensorMapFields) <= kTensorMapBytes);

// Which rule of the driver or of PTX the fields break; empty if they break none.
std::string tensor_map_error(const TensorMapFields& fields);

// Writes the 128 bytes.
void store_tensor_map(const TensorMapFields& fields, void* out128);
// What they hold; a Fault if they were made by no function of the driver.
const TensorMapFields& tensor_map_fields(const void* bytes);

// A tensor map as copies use it. The unit of dimension 0 is what is never divided: an element, a
// slice of an interleaved tensor, or some elements that are narrower than a byte.
struct TensorMap {
  uint64_t address;
  uint64_t stride_bytes[kTensorMapRank - 1];
  uint32_t last_index[kTensorMapRank];  // of dimension 0 in units
  uint16_t count[kTensorMapRank];       // units and rows that are moved; of im2col only count[0]
  uint8_t step[kTensorMapRank];         // distance of these in the tensor
  uint8_t rank;
  TensorMode mode;
  uint8_t data_type;            // CUtensorMapDataType
  Type type;                    // kNone if narrower than a byte
  uint8_t element_bytes;        // of that type
  uint8_t unit_elements;
  uint8_t unit_bytes;           // in global memory
  uint8_t unit_shared_bytes;    // in shared memory, with a gap behind it
  uint8_t swizzle_row_bytes;    // 16 for none
  uint8_t swizzle_atom_bytes;
  bool swaps_halves;            // of 16 bytes in every other line of 128 bytes of shared memory
  bool fill_nan;                // out-of-bounds elements are a NaN instead of zero
  bool round_tf32;              // loads round f32 to tf32
  bool interleaved;             // a unit is a slice of channels
  bool gathers;                 // dimension 1 is four rows, each with a coordinate of its own
  uint16_t pixels;              // of im2col
  int16_t lower[kTensorMapRank - 2];
  int16_t upper[kTensorMapRank - 2];
};

// The map that valid fields describe, whatever the size of its box.
TensorMap tensor_map_of(const TensorMapFields& fields);

// The map that these 128 bytes hold; a Fault if they hold none, or an invalid one.
TensorMap tensor_map_at(const void* bytes);

// The map as tile::gather4 and tile::scatter4 use it: coordinates are that of dimension 0 and those
// of four rows. A Fault unless the map has two dimensions and boxes of one row.
TensorMap gather4(const TensorMap& map);

// Rows of the box in shared memory; `halo` is the number of pixels that im2col::w adds.
uint64_t tensor_map_rows(const TensorMap& map, uint32_t halo = 0);

// Bytes of the box, whether in bounds or not: what a load adds to complete-tx.
uint64_t tensor_map_box_bytes(const TensorMap& map, uint32_t halo = 0);

// Bytes of a row in shared memory.
uint32_t tensor_map_row_bytes(const TensorMap& map);

// Distance of the box's rows in shared memory: narrow rows are as far apart as the swizzle is wide,
// and what is between them stays as it is.
uint32_t tensor_map_row_pitch(const TensorMap& map);

// Bytes of shared memory from the first row of the box to the end of the last row's pitch.
uint64_t tensor_map_footprint(const TensorMap& map, uint32_t halo = 0);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_TENSOR_MAP_H_
