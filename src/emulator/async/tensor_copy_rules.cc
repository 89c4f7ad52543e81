// What PTX forbids of tensor copies beyond the rules of tensor maps ("Restriction on Tensor Copy
// instructions", "im2col Mode").

#include "emulator/async/tensor_copy.h"
#include "emulator/async/tensor_type.h"

namespace warploom::emulator {
namespace {

// Bits of the offsets of im2col, which are fewer the more of them there are.
constexpr int kOffsetBits[kTensorMapRank + 1] = {0, 0, 0, 16, 8, 5};

void check_store(const TensorMap& map, Reduction reduction) {
  if (map.swaps_halves) fault("the swizzle that swaps halves of 16 bytes is for loads only");
  if (map.data_type == kTypeExpanded4) {
    fault("elements of 4 bits with gaps between them can be loaded, not stored");
  }
  if (map.type == Type::kNone && reduction != Reduction::kNone) {
    fault("elements that are narrower than a byte cannot be reduced");
  }
  for (int i = 0; map.mode != TensorMode::kTiled && i < map.rank - 2; ++i) {
    if (map.lower[i] < 0 || map.upper[i] > 0) {
      fault("a store has to keep within the tensor: the corners of dimension %d are %d, which is "
            "at least 0, and %d, which is at most 0",
            i + 1, map.lower[i], map.upper[i]);
    }
  }
}

// The base of the filter lies in the bounding box; that of im2col::w may be to the left of it.
void check_base(const TensorMap& map, const TensorPlace& place) {
  const bool wide = map.mode != TensorMode::kIm2col;
  for (std::size_t i = 0; i < (wide ? 1u : map.rank - 2u); ++i) {
    const int64_t last = int64_t{map.last_index[i + 1]} + map.upper[i];
    const int64_t at = place.at[i + 1];
    if (at > last || (!wide && at < map.lower[i])) {
      fault("coordinate %d of dimension %zu lies outside of the bounding box, %d to %lld",
            place.at[i + 1], i + 1, map.lower[i], static_cast<long long>(last));
    }
    if (!wide && place.offsets[i] >> kOffsetBits[map.rank] != 0) {
      fault("the offset %u of im2col in dimension %zu has more than %d bits", place.offsets[i],
            i + 1, kOffsetBits[map.rank]);
    }
  }
}

}  // namespace

void check_tensor_copy(const TensorMap& map, TensorDirection direction, Reduction reduction) {
  if (map.interleaved && map.mode != TensorMode::kTiled) {
    fault("im2col of an interleaved tensor is not supported by the emulator");
  }
  if (direction == TensorDirection::kStore) {
    check_store(map, reduction);
  } else if (map.data_type == kTypeExpanded6 && map.swizzle_atom_bytes == 64) {
    fault("elements of 6 bits with atoms of 64 bytes can be stored, not loaded");
  }
}

void check_tensor_place(const TensorMap& map, const TensorPlace& place) {
  const int whole = map.data_type == kTypePacked4 ? 2
                    : map.type == Type::kNone     ? static_cast<int>(kExpandedRow)
                                                  : 1;
  if (map.unit_elements > 1 && place.at[0] % whole != 0) {
    fault("coordinate %d of dimension 0 must be a multiple of %d for this type", place.at[0],
          whole);
  }
  if (map.mode != TensorMode::kTiled) check_base(map, place);
}

uint32_t tensor_halo(const TensorMap& map, const TensorPlace& place) {
  const bool wide = map.mode == TensorMode::kIm2colWide || map.mode == TensorMode::kIm2colWide128;
  return wide ? place.offsets[0] : 0;
}

}  // namespace warploom::emulator
