// From the 128 bytes of a tensor map to the form that copies use.

#include "emulator/async/tensor_map.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "emulator/async/tensor_type.h"
#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

constexpr uint64_t kMagic = 0x70616d726f736e74;  // "tnsormap"
constexpr uint8_t kChunk = 16;
constexpr uint16_t kWidePixels = 128;  // im2col::w::128
constexpr uint32_t kHaloEvery = 32;    // pixels between its halos

constexpr uint8_t kSwizzleRowBytes[] = {16, 32, 64, 128};
constexpr uint8_t kSwizzleAtomBytes[] = {16, 32, 32, 64};
constexpr uint8_t kSwapsHalves = 2;  // of the atomicities above

void set_units(TensorMap& map, const TensorMapFields& fields) {
  const TensorType& type = kTensorTypes[fields.data_type];
  map.data_type = fields.data_type;
  map.type = type.type;
  map.element_bytes = static_cast<uint8_t>(type.bits / 8);
  map.round_tf32 = type.round_tf32;
  map.unit_elements = type.unit_elements;
  map.unit_bytes = type.unit_bytes != 0 ? type.unit_bytes : map.element_bytes;
  map.unit_shared_bytes = type.unit_bytes != 0 ? type.unit_shared_bytes : map.element_bytes;
  // Dimension 0 of an interleaved tensor counts slices.
  if (fields.interleave != 0) {
    map.interleaved = true;
    map.unit_elements = 1;
    map.unit_bytes = map.unit_shared_bytes = static_cast<uint8_t>(kChunk * fields.interleave);
  }
}

void set_box(TensorMap& map, const TensorMapFields& fields) {
  const bool tiled = fields.mode == TensorMode::kTiled;
  for (int d = 0; d < fields.rank; ++d) {
    // Without interleave, dimension 0 is always dense. Elsewhere the box counts what is skipped;
    // that of im2col counts pixels.
    const bool dense = d == 0 && fields.interleave == 0;
    map.step[d] = dense ? 1 : fields.step[d];
    map.last_index[d] = fields.last_index[d];
    const uint32_t counted = tiled ? map.step[d] : 1u;
    map.count[d] = tiled || d == 0
                       ? static_cast<uint16_t>((fields.box[d] + counted - 1) / counted)
                       : uint16_t{1};
  }
  // A box holds one slice of channels, whatever is asked for, as an H200 shows.
  if (tiled && fields.interleave != 0) map.count[fields.rank - 2] = 1;
  map.last_index[0] /= map.unit_elements;
  map.count[0] = static_cast<uint16_t>(map.count[0] / map.unit_elements);
  if (tiled) return;
  map.pixels = fields.mode == TensorMode::kIm2colWide128 ? kWidePixels : fields.box[1];
  std::copy_n(fields.lower, kTensorMapRank - 2, map.lower);
  std::copy_n(fields.upper, kTensorMapRank - 2, map.upper);
}

}  // namespace

void store_tensor_map(const TensorMapFields& fields, void* out128) {
  std::memset(out128, 0, kTensorMapBytes);
  std::memcpy(out128, &fields, sizeof(fields));
  std::memcpy(out128, &kMagic, sizeof(kMagic));
}

const TensorMapFields& tensor_map_fields(const void* bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  if (address % alignof(TensorMapFields) != 0) {
    fault_of(FaultKind::kDescriptor,
             "the tensor map at 0x%" PRIxPTR " is misaligned: PTX wants a multiple of 64", address);
  }
  const auto* fields = static_cast<const TensorMapFields*>(bytes);
  if (fields->magic != kMagic) {
    fault_of(FaultKind::kDescriptor,
             "the 128 bytes at 0x%" PRIxPTR
             " are no tensor map made by cuTensorMapEncodeTiled or one "
             "of the driver's other functions",
             address);
  }
  return *fields;
}

TensorMap tensor_map_at(const void* bytes) {
  const TensorMapFields& fields = tensor_map_fields(bytes);
  const std::string error = tensor_map_error(fields);
  if (!error.empty())
    fault_of(FaultKind::kDescriptor, "the tensor map is invalid: %s", error.c_str());
  return tensor_map_of(fields);
}

TensorMap tensor_map_of(const TensorMapFields& fields) {
  TensorMap map{};
  map.address = fields.address;
  std::copy_n(fields.stride_bytes, kTensorMapRank - 1, map.stride_bytes);
  map.rank = fields.rank;
  map.mode = fields.mode;
  map.swizzle_row_bytes = kSwizzleRowBytes[fields.swizzle];
  map.swizzle_atom_bytes = kSwizzleAtomBytes[fields.swizzle_atomicity];
  map.swaps_halves = fields.swizzle_atomicity == kSwapsHalves;
  map.fill_nan = fields.fill != 0;
  set_units(map, fields);
  set_box(map, fields);
  return map;
}

TensorMap gather4(const TensorMap& map) {
  if (map.mode != TensorMode::kTiled || map.rank != 2 || map.count[1] != 1) {
    fault_of(
        FaultKind::kDescriptor,
        "tile::gather4 and tile::scatter4 take tensor maps of two dimensions with boxes of one "
        "row; this one has %d dimensions and %u rows",
        map.rank, map.rank < 2 ? 1u : map.count[1]);
  }
  TensorMap result = map;
  result.count[1] = 4;
  result.gathers = true;
  return result;
}

uint64_t tensor_map_rows(const TensorMap& map, uint32_t halo) {
  if (map.mode != TensorMode::kTiled) {
    const bool often = map.mode == TensorMode::kIm2colWide128;
    return map.pixels + uint64_t{halo} * (often ? map.pixels / kHaloEvery : 1);
  }
  // At most 256^4.
  uint64_t rows = 1;
  for (int d = 1; d < map.rank; ++d) rows *= map.count[d];
  return rows;
}

uint64_t tensor_map_box_bytes(const TensorMap& map, uint32_t halo) {
  return uint64_t{map.count[0]} * map.unit_bytes * tensor_map_rows(map, halo);
}

uint32_t tensor_map_row_bytes(const TensorMap& map) {
  return uint32_t{map.count[0]} * map.unit_shared_bytes;
}

uint32_t tensor_map_row_pitch(const TensorMap& map) {
  const bool widens = map.swizzle_row_bytes > kChunk && !map.interleaved;
  return std::max(tensor_map_row_bytes(map), widens ? uint32_t{map.swizzle_row_bytes} : 0);
}

uint64_t tensor_map_footprint(const TensorMap& map, uint32_t halo) {
  return tensor_map_row_pitch(map) * tensor_map_rows(map, halo);
}

}  // namespace warploom::emulator
