#include "emulator/tensor/tensor_fragment.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// Each kind of shape as a function from thread and register of one repetition to a cell.
struct Place {
  uint32_t row;
  uint32_t column;
};

constexpr Place place_of(int shape, uint32_t thread, uint32_t index) {
  switch (shape) {
    case 0:  // 16x64b
      return {thread / 4 + 8 * (thread % 2), thread / 2 % 2};
    case 1:  // 16x128b
      return {thread / 4 + 8 * index, thread % 4};
    case 2:  // 16x256b
      return {thread / 4 + 8 * (index / 2), 2 * (thread % 4) + index % 2};
    case 3:  // 32x32b
      return {thread, 0};
    default:  // 16x32bx2; the upper threads make the second access
      return {thread % 16, 0};
  }
}

// Calls move(register, thread, cell) for every register; packed registers meet two cells there.
template <class Move>
void for_each_cell(const TensorFragment& fragment, TensorMemory& memory, TensorAddress base,
                   Move move) {
  const TensorShape& shape = kTensorShapes[fragment.shape];
  const uint32_t scale = fragment.halves ? 2 : 1;
  for (uint32_t thread = 0; thread < kLanes; ++thread) {
    const bool second = fragment.shape == kSplitShape && thread >= 16;
    const uint32_t first = base.column + (second ? fragment.split_offset : 0);
    for (uint32_t index = 0; index < shape.registers; ++index) {
      const Place place = place_of(fragment.shape, thread, index);
      uint32_t* row = memory.at(base.lane + place.row, first, fragment.columns());
      for (uint32_t i = 0; i < fragment.repetitions; ++i) {
        move(i * shape.registers + index, thread, row + (i * shape.columns + place.column) * scale);
      }
    }
  }
}

}  // namespace

const TensorShape kTensorShapes[5] = {{"16x64b", 16, 2, 1},
                                      {"16x128b", 16, 4, 2},
                                      {"16x256b", 16, 8, 4},
                                      {"32x32b", 32, 1, 1},
                                      {"16x32bx2", 16, 1, 1}};

void check_fragment(const TensorFragment& fragment) {
  if (fragment.registers() > kMostFragmentRegisters) {
    const TensorShape& shape = kTensorShapes[fragment.shape];
    fault(".%s.x%u has %u registers; at most %u are allowed", shape.name.data(),
          fragment.repetitions, fragment.registers(), kMostFragmentRegisters);
  }
}

TensorAddress fragment_base(const TensorFragment& fragment, uint32_t warp, uint32_t address) {
  TensorAddress base(address);
  const uint32_t quarter = warp % 4 * kLanes;
  const uint32_t step = fragment.rows();
  if (base.lane % step != 0) {
    fault("lane %u of the address 0x%x is not a multiple of %u, the rows of this shape", base.lane,
          address, step);
  }
  if (base.lane < kLanes) base.lane += quarter;
  if (base.lane / kLanes * kLanes != quarter) {
    fault("warp %u accesses lane %u of tensor memory (address 0x%x); it may access lanes %u to %u",
          warp, base.lane, address, quarter, quarter + kLanes - 1);
  }
  return base;
}

void load_fragment(const TensorFragment& fragment, TensorMemory& memory, TensorAddress base,
                   uint32_t* const* registers) {
  if (fragment.halves) {
    for_each_cell(fragment, memory, base, [=](uint32_t index, uint32_t thread, uint32_t* cell) {
      registers[index][thread] = (cell[0] & 0xffff) | cell[1] << 16;
    });
  } else {
    for_each_cell(fragment, memory, base, [=](uint32_t index, uint32_t thread, uint32_t* cell) {
      registers[index][thread] = *cell;
    });
  }
}

void store_fragment(const TensorFragment& fragment, TensorMemory& memory, TensorAddress base,
                    const uint32_t* const* registers) {
  if (fragment.halves) {
    for_each_cell(fragment, memory, base, [=](uint32_t index, uint32_t thread, uint32_t* cell) {
      cell[0] = registers[index][thread] & 0xffff;
      cell[1] = registers[index][thread] >> 16;
    });
  } else {
    for_each_cell(fragment, memory, base, [=](uint32_t index, uint32_t thread, uint32_t* cell) {
      *cell = registers[index][thread];
    });
  }
}

}  // namespace warploom::emulator
