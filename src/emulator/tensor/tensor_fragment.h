// Which cells of tensor memory the registers of a warp meet in tcgen05.ld and tcgen05.st (PTX ISA,
// "tcgen05 Data Movement Shape" and "Packing and Unpacking").

#ifndef WARPLOOM_EMULATOR_TENSOR_TENSOR_FRAGMENT_H_
#define WARPLOOM_EMULATOR_TENSOR_TENSOR_FRAGMENT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "emulator/base/lanes.h"
#include "emulator/tensor/tensor_memory.h"

namespace warploom::emulator {

struct TensorShape {
  std::string_view name;
  uint32_t rows;       // lanes of tensor memory
  uint32_t columns;    // of one repetition
  uint32_t registers;  // of a thread for one repetition
};

constexpr uint32_t kMostFragmentRegisters = 128;

// .16x32bx2 is two accesses of 16 rows and one column a repetition.
extern const TensorShape kTensorShapes[5];
constexpr int kSplitShape = 4;

struct TensorFragment {
  int shape = 0;              // in kTensorShapes
  uint32_t repetitions = 1;   // .num
  bool halves = false;        // .pack::16b, .unpack::16b: a register is two columns of 16 bits
  uint32_t split_offset = 0;  // columns from the first access of .16x32bx2 to the second

  uint32_t registers() const { return kTensorShapes[shape].registers * repetitions; }
  uint32_t rows() const { return kTensorShapes[shape].rows; }
  // Of one access.
  uint32_t columns() const { return kTensorShapes[shape].columns * repetitions * (halves ? 2 : 1); }
};

// A Fault if the combination is not one of the table of tcgen05.ld.
void check_fragment(const TensorFragment& fragment);

// Where the warp begins: its own quarter of the lanes, of which the address names the first lane,
// or the middle for shapes of 16 rows. Lane 0 stands for the beginning of any quarter, too.
TensorAddress fragment_base(const TensorFragment& fragment, uint32_t warp, uint32_t address);

// Calls visit(lane, column, columns) for all that the warp touches.
template <class Visit>
void visit_fragment(const TensorFragment& fragment, TensorAddress base, Visit visit) {
  for (uint32_t row = 0; row < fragment.rows(); ++row) {
    visit(base.lane + row, base.column, fragment.columns());
    if (fragment.shape == kSplitShape) {
      visit(base.lane + row, base.column + fragment.split_offset, fragment.columns());
    }
  }
}

// registers[i] points to register i of the 32 threads.
void load_fragment(const TensorFragment& fragment, TensorMemory& memory, TensorAddress base,
                   uint32_t* const* registers);
void store_fragment(const TensorFragment& fragment, TensorMemory& memory, TensorAddress base,
                    const uint32_t* const* registers);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_TENSOR_FRAGMENT_H_
