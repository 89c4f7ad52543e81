// The rules of tensor maps: those of the driver's functions, which PTX repeats ("Tensors",
// "Restrictions on Tensor Copy instructions").

#include <cinttypes>
#include <string>
#include <utility>

#include "emulator/async/tensor_map.h"
#include "emulator/async/tensor_type.h"
#include "emulator/base/device.h"
#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

constexpr uint64_t kMaxStride = uint64_t{1} << 40;
constexpr uint32_t kMaxBox = 256;
constexpr uint32_t kMaxPixels = 1024;
constexpr uint32_t kMaxStep = 8;
constexpr uint32_t kChunk = 16;
constexpr uint32_t kSwizzleBytes[] = {16, 32, 64, 128};

// Corners of im2col have fewer bits the more of them there are.
constexpr int kCornerLimit[kTensorMapRank + 1] = {0, 0, 0, 1 << 15, 1 << 7, 1 << 4};

using Rule = std::string (*)(const TensorMapFields&);

std::string check_values(const TensorMapFields& map) {
  if (map.rank == 0 || map.rank > kTensorMapRank) {
    return format("rank %u is not within 1 to 5", map.rank);
  }
  struct Enumerator {
    const char* name;
    int value;
    int count;
  };
  const Enumerator enumerators[] = {
      {"data type", map.data_type, kTensorTypeCount},
      {"interleave", map.interleave, 3},
      {"swizzle", map.swizzle, 4},
      {"swizzle atomicity", map.swizzle_atomicity, 4},
      {"out-of-bounds fill", map.fill, 2},
  };
  for (const Enumerator& each : enumerators) {
    if (each.value >= each.count) return format("%s has no value %d", each.name, each.value);
  }
  return "";
}

std::string check_fill(const TensorMapFields& map) {
  if (map.fill != 0 && !is_float(kTensorTypes[map.data_type].type)) {
    return "only floating-point types have a NaN";
  }
  return "";
}

// Slices of 32 bytes, and units that are expanded, double the alignment.
std::string check_tensor(const TensorMapFields& map) {
  const bool expanded = kTensorTypes[map.data_type].is_expanded();
  const uint64_t alignment = map.interleave == 2 || expanded ? 32 : 16;
  if (map.address % alignment != 0) {
    return format("the address 0x%" PRIx64 " is no multiple of %" PRIu64, map.address, alignment);
  }
  for (int d = 1; d < map.rank; ++d) {
    const uint64_t stride = map.stride_bytes[d - 1];
    if (stride % alignment != 0 || stride >= kMaxStride) {
      return format("stride %" PRIu64 " of dimension %d is no multiple of %" PRIu64
                    " bytes below 2^40",
                    stride, d, alignment);
    }
  }
  const uint64_t extent = uint64_t{map.last_index[0]} + 1;
  const uint64_t whole = expanded                            ? kExpandedRow
                         : map.data_type == kTypePacked4 ? 2
                                                             : 1;
  if (extent % whole != 0) {
    return format("extent %" PRIu64 " of dimension 0 is no multiple of %" PRIu64
                  ", as the type wants it",
                  extent, whole);
  }
  return "";
}

std::string check_steps(const TensorMapFields& map) {
  for (int d = 0; d < map.rank; ++d) {
    if (map.step[d] == 0 || map.step[d] > kMaxStep) {
      return format("element stride %u of dimension %d is not within 1 to %u", map.step[d], d,
                    kMaxStep);
    }
  }
  return "";
}

std::string check_box(const TensorMapFields& map) {
  const bool tiled = map.mode == TensorMode::kTiled;
  for (int d = 0; d < (tiled ? map.rank : 1); ++d) {
    if (map.box[d] == 0 || map.box[d] > kMaxBox) {
      return format("box extent %u of dimension %d is not within 1 to %u", map.box[d], d, kMaxBox);
    }
  }
  const TensorType& type = kTensorTypes[map.data_type];
  if (map.interleave == 0 && type.is_expanded() && map.box[0] != kExpandedRow) {
    return format("a box row of this type has %u elements, not %u", kExpandedRow, map.box[0]);
  }
  const uint32_t bits = map.box[0] * type.bits;
  if (bits % (8 * kChunk) != 0) {
    return format("a box row of %u bytes is no multiple of 16", bits / 8);
  }
  if (map.interleave != 0) return "";
  // With gaps, units of 16 elements take 16 bytes each.
  const uint32_t row = type.is_expanded() ? map.box[0] : bits / 8;
  if (map.swizzle != 0 && row > kSwizzleBytes[map.swizzle]) {
    return format("a box row of %u bytes exceeds the swizzle of %u", row,
                  kSwizzleBytes[map.swizzle]);
  }
  return "";
}

std::string check_interleave(const TensorMapFields& map) {
  if (map.interleave == 0) return "";
  if (map.rank < 3) return format("an interleaved tensor has 3 to 5 dimensions, not %u", map.rank);
  if (map.interleave == 2 && map.swizzle != 1) {
    return "slices of 32 bytes need the swizzle of 32 bytes";
  }
  if (map.data_type == kTypeExpanded6) return "elements of 6 bits cannot be interleaved";
  return "";
}

std::string check_swizzle(const TensorMapFields& map) {
  if (map.swizzle_atomicity != 0 && map.swizzle != 3) {
    return "only the swizzle of 128 bytes has atoms of more than 16 bytes";
  }
  if (!kTensorTypes[map.data_type].is_expanded()) return "";
  const bool swaps = map.swizzle_atomicity == 2;
  const bool wide = map.swizzle_atomicity == 3;
  if ((map.swizzle != 0 && map.swizzle != 3) || swaps ||
      (wide && map.data_type == kTypeExpanded4)) {
    return "the type has no such swizzle";
  }
  return "";
}

std::string check_corners(const TensorMapFields& map, int dimensions, int limit) {
  for (int i = 0; i < dimensions; ++i) {
    for (int corner : {int{map.lower[i]}, int{map.upper[i]}}) {
      if (corner < -limit || corner >= limit) {
        return format("corner %d of the bounding box is not within %d to %d", corner, -limit,
                      limit - 1);
      }
    }
    const int64_t last = int64_t{map.last_index[i + 1]} + map.upper[i];
    if (last < map.lower[i]) {
      return format("the bounding box is empty in dimension %d: it goes from %d to %" PRId64, i + 1,
                    map.lower[i], last);
    }
  }
  return "";
}

std::string check_im2col(const TensorMapFields& map) {
  if (map.mode == TensorMode::kTiled) return "";
  if (map.rank < 3) return format("im2col takes tensors of 3 to 5 dimensions, not %u", map.rank);
  if (map.mode != TensorMode::kIm2colWide128 && (map.box[1] == 0 || map.box[1] > kMaxPixels)) {
    return format("%u pixels are not within 1 to %u", map.box[1], kMaxPixels);
  }
  if (map.mode == TensorMode::kIm2col) {
    return check_corners(map, map.rank - 2, kCornerLimit[map.rank]);
  }
  if (map.interleave != 0) return "im2col::w takes no interleaved tensors";
  if (map.swizzle < 2 || map.swizzle_atomicity > 1) {
    return "im2col::w needs a swizzle of 64 bytes, or of 128 with atoms of 16 or 32 bytes";
  }
  return check_corners(map, 1, kCornerLimit[3]);
}

// The driver's rules bound each extent of a box, not their product; but there is no CTA that a
// larger box could be copied to.
std::string check_footprint(const TensorMapFields& map) {
  const uint64_t bytes = tensor_map_footprint(tensor_map_of(map));
  if (bytes <= kSharedPerCtaOptIn) return "";
  std::string extents;
  for (int d = 0; d < (map.mode == TensorMode::kTiled ? map.rank : 2); ++d) {
    extents += (d == 0 ? "" : " x ") + std::to_string(map.box[d]);
  }
  return format("a box of %s elements takes %" PRIu64 " bytes of shared memory; a CTA has %u at "
                "most",
                extents.c_str(), bytes, kSharedPerCtaOptIn);
}

constexpr Rule kRules[] = {check_values,     check_fill,    check_tensor, check_steps,    check_box,
                           check_interleave, check_swizzle, check_im2col, check_footprint};

}  // namespace

std::string tensor_map_error(const TensorMapFields& fields) {
  for (Rule rule : kRules) {
    std::string error = rule(fields);
    if (!error.empty()) return error;
  }
  return "";
}

}  // namespace warploom::emulator
