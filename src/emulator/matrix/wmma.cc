#include "emulator/matrix/wmma.h"

#include <algorithm>
#include <utility>

#include "emulator/matrix/element.h"
#include "emulator/matrix/fragment.h"
#include "emulator/matrix/mma.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;
constexpr int kColumns = 8;  // of one mma.sync

// The product that mma.sync forms, which may be the transpose.
struct Tiling {
  bool turned;
  int rows;          // of a block, 8 or 16
  int row_blocks;
  int column_blocks;
};

Tiling tiling_of(const WmmaShape& shape) {
  const bool turned = shape.m < shape.n;
  const int m = std::max(shape.m, shape.n), n = std::min(shape.m, shape.n);
  const int rows = std::min(m, 16);
  return {turned, rows, m / rows, n / kColumns};
}

bool is_left(const Tiling& tiling, WmmaOperand operand) {
  return operand == (tiling.turned ? WmmaOperand::kB : WmmaOperand::kA);
}

// Blocks of a fragment.
int blocks_of(const Tiling& tiling, WmmaOperand operand) {
  if (operand == WmmaOperand::kC) return tiling.row_blocks * tiling.column_blocks;
  return is_left(tiling, operand) ? tiling.row_blocks : tiling.column_blocks;
}

struct Place {
  int row;
  int column;
};

// Rows and columns of a fragment, as its operand has them.
Place extent_of(WmmaOperand operand, const WmmaShape& shape) {
  switch (operand) {
    case WmmaOperand::kA: return {shape.m, shape.k};
    case WmmaOperand::kB: return {shape.k, shape.n};
    default: return {shape.m, shape.n};
  }
}

// Registers that hold an element each, or parts of one, once.
int distinct_registers(WmmaOperand operand, const WmmaShape& shape, Type type) {
  const Place extent = extent_of(operand, shape);
  const int bits = wmma_element_bits(type);
  return extent.row * extent.column * bits / std::max(bits, 32) / kLanes;
}

// Element of a register of a block, in the fragment of mma.sync.
Place place_in_block(const Tiling& tiling, WmmaOperand operand, int reg, int lane, int element,
                     int elements) {
  const int halves = tiling.rows / 8;
  if (operand == WmmaOperand::kC) {
    const int i = reg * elements + element;
    return {lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2};
  }
  if (is_left(tiling, operand)) {
    return {lane / 4 + 8 * (reg % halves), (lane % 4 + 4 * (reg / halves)) * elements + element};
  }
  return {lane / 4, (lane % 4 + 4 * reg) * elements + element};
}

// In the matrix of the operand: what is multiplied from the right lies there as columns.
Place place_of(const Tiling& tiling, WmmaOperand operand, int block, Place inner) {
  if (operand == WmmaOperand::kC) {
    const Place place{inner.row + tiling.rows * (block / tiling.column_blocks),
                      inner.column + kColumns * (block % tiling.column_blocks)};
    return tiling.turned ? Place{place.column, place.row} : place;
  }
  const int outer = inner.row + block * (is_left(tiling, operand) ? tiling.rows : kColumns);
  return operand == WmmaOperand::kA ? Place{outer, inner.column} : Place{inner.column, outer};
}

// One product of mma.sync.
MmaForm tile_form(const WmmaForm& form, Type accumulator) {
  MmaForm tile{};
  tile.m = std::min(std::max(form.shape.m, form.shape.n), 16);
  tile.n = kColumns;
  tile.k = form.shape.k;
  tile.d = tile.c = accumulator;
  tile.a = tile.b = form.operand;
  tile.satfinite = form.satfinite;
  tile.bits = form.bits;
  return tile;
}

struct Accumulator {
  alignas(64) uint32_t lanes[kMostWmmaRegisters][kLanes];
  uint32_t* registers[kMostWmmaRegisters];

  Accumulator() {
    for (int i = 0; i < kMostWmmaRegisters; ++i) registers[i] = lanes[i];
  }
};

}  // namespace

int wmma_element_bits(Type type) {
  const int bits = element_bits(type);
  return bits == 0 ? type_bits(type) : bits;
}

int wmma_registers(WmmaOperand operand, const WmmaShape& shape, Type type) {
  const bool repeats = operand != WmmaOperand::kC && type == Type::kF16;
  return repeats ? kMostWmmaRegisters : distinct_registers(operand, shape, type);
}

std::vector<WmmaPiece> wmma_pieces(const WmmaTransfer& transfer) {
  const auto [operand, shape, type, column_major] = transfer;
  const Tiling tiling = tiling_of(shape);
  const int bits = wmma_element_bits(type), elements = std::max(32 / bits, 1);
  const int distinct = distinct_registers(operand, shape, type);
  const int in_block = distinct / blocks_of(tiling, operand);
  std::vector<WmmaPiece> pieces;
  for (int reg = 0; reg < wmma_registers(operand, shape, type); ++reg) {
    const int block = reg % distinct / in_block, inner = reg % distinct % in_block;
    for (int lane = 0; lane < kLanes; ++lane) {
      WmmaPiece piece{};  // of no bytes
      for (int element = 0; element < elements; ++element) {
        Place place = place_of(tiling, operand, block,
                               place_in_block(tiling, operand, inner, lane, element, elements));
        if (column_major) std::swap(place.row, place.column);
        // Of elements of less than a byte, a word lies together: A is .row then, and B is .col.
        if (bits < 8 && element != 0) continue;
        const int bytes = bits < 8 ? 4 : bits / 8, in_line = place.column * bits / 8;
        const bool goes_on =
            piece.bytes != 0 && piece.line == place.row && piece.in_line + piece.bytes == in_line;
        if (goes_on) {
          piece.bytes = static_cast<uint8_t>(piece.bytes + bytes);
          continue;
        }
        if (piece.bytes != 0) pieces.push_back(piece);
        piece = {static_cast<uint8_t>(lane),        static_cast<uint8_t>(reg),
                 static_cast<uint8_t>(element * bits / 8), static_cast<uint8_t>(bytes),
                 static_cast<uint16_t>(place.row),  static_cast<uint16_t>(in_line)};
      }
      pieces.push_back(piece);
    }
  }
  return pieces;
}

WmmaLines wmma_lines(const WmmaTransfer& transfer) {
  const Place extent = extent_of(transfer.operand, transfer.shape);
  return transfer.column_major ? WmmaLines{extent.column, extent.row}
                               : WmmaLines{extent.row, extent.column};
}

void wmma_multiply(const WmmaForm& form, uint32_t* const* d, const uint32_t* const* a,
                   const uint32_t* const* b, const uint32_t* const* c) {
  const Tiling tiling = tiling_of(form.shape);
  const uint32_t* const* left = tiling.turned ? b : a;
  const uint32_t* const* right = tiling.turned ? a : b;
  // Where one of c and d is f16 and the other f32, sums are f32.
  const bool mixed = form.c != form.d;
  MmaForm tile = tile_form(form, mixed ? Type::kF32 : form.d);
  // The H200 sums tf32 in two steps of four (golden family wmma), unlike mma.sync.m16n8k8.
  const int steps = form.operand == Type::kTf32 ? 2 : 1;
  tile.k /= steps;
  const auto registers = [&](WmmaOperand operand, Type type) {
    return distinct_registers(operand, form.shape, type) / blocks_of(tiling, operand);
  };
  const auto [left_operand, right_operand] = tiling.turned
                                                 ? std::pair{WmmaOperand::kB, WmmaOperand::kA}
                                                 : std::pair{WmmaOperand::kA, WmmaOperand::kB};
  const int of_left = registers(left_operand, form.operand);
  const int of_right = registers(right_operand, form.operand);
  const int of_tile = registers(WmmaOperand::kC, tile.d);
  const int blocks = blocks_of(tiling, WmmaOperand::kC);

  Accumulator start, sum, packed;
  if (mixed && form.c == Type::kF16) {
    load_f16_accumulator(blocks * kColumns, 1, c, start.registers);
    c = start.registers;
  }
  for (int block = 0; block < blocks; ++block) {
    uint32_t* const* to = sum.registers + block * of_tile;
    const uint32_t* const* from = c + block * of_tile;
    for (int step = 0; step < steps; ++step) {
      mma_sync(tile, to, left + block / tiling.column_blocks * of_left + step * of_left / steps,
               right + block % tiling.column_blocks * of_right + step * of_right / steps, from,
               nullptr);
      from = to;
    }
  }
  Accumulator* result = &sum;
  if (mixed && form.d == Type::kF16) {
    store_f16_accumulator(blocks * kColumns, 1, sum.registers, packed.registers);
    result = &packed;
  }
  const int count = wmma_registers(WmmaOperand::kC, form.shape, form.d);
  for (int i = 0; i < count; ++i) std::copy_n(result->lanes[i], kLanes, d[i]);
}

void wmma_multiply_double(uint64_t* const* d, const uint64_t* const* a, const uint64_t* const* b,
                          const uint64_t* const* c) {
  MmaForm form{};
  form.m = form.n = 8;
  form.k = 4;
  form.d = form.a = form.b = form.c = Type::kF64;
  mma_sync_double(form, d, a, b, c);
}

}  // namespace warploom::emulator
