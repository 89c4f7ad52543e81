// Where tcgen05.mma finds the rows of A and D and the scale factors in tensor memory (PTX ISA,
// "tcgen05", "Data Path Layout Organization", "Scale Factor A ID", "Zero-Column Mask Descriptor").

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_LAYOUT_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_LAYOUT_H_

#include <cstdint>

namespace warploom::emulator {

// Four data paths of 32 lanes each compute the lanes of their own quarter, from the A and the
// scale factors in that quarter. What the layouts differ in is how rows spread over the lanes:
//   A, D: 128 rows in 128 lanes;
//   B, E: 64 rows, the second half of D's columns in lanes 64 to 127;
//   F:    64 rows, 16 in each quarter;
//   G:    32 rows, a quarter of D's columns in each quarter of the lanes.
struct DataPath {
  int rows;        // of A and D in each CTA
  int banks;       // groups of lanes that D's columns are divided among
  bool scattered;  // layout F

  int lane(int row, int bank) const {
    return scattered ? row / 16 * 32 + row % 16 : row + bank * rows;
  }
};

DataPath umma_data_path(int m, int cta_group, bool weight_stationary);

struct TensorCell {
  uint32_t lane;
  uint32_t column;
};

constexpr TensorCell tensor_cell(uint32_t bits) { return {bits >> 16, bits & 0xffff}; }

// The scale factors of row `row` of A, or column `row` of a bank of D, as the data path of a
// quarter reads them: a word that holds up to four of them. Words of 32 rows lie in one column.
constexpr TensorCell scale_word(TensorCell base, int quarter, int row) {
  return {static_cast<uint32_t>(32 * quarter + row % 32),
          base.column + static_cast<uint32_t>(row / 32)};
}

// Columns of B that .ws multiplies as if they were zero, and how far the others are shifted.
class ZeroColumns {
 public:
  ZeroColumns() = default;  // none
  // A Fault if a field is illegal. `max_shift` is that of the instruction descriptor.
  ZeroColumns(uint64_t bits, int m, int n, int max_shift);

  int shift() const { return static_cast<int>(bits_ >> 56 & 63); }
  bool any() const { return (bits_ >> 39 & 1) != 0; }  // else all columns are used
  bool is_zero(int column) const;

 private:
  uint64_t bits_ = 0;
  int columns_ = 1;  // that one sub-mask covers
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_LAYOUT_H_
