// wmma.load, wmma.mma and wmma.store: fragments and products are in matrix/wmma.h.

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/rounding.h"
#include "emulator/exec/isa/tensor_core/families.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/counters.h"
#include "emulator/matrix/wmma.h"

namespace warploom::emulator {
namespace {

using ptx::Space;

// Rows, or columns, are read in chunks of up to 16 bytes, so that is what a stride must be a
// multiple of. The ISA asks for all bytes of a lane's fragment, which may be more; CUDA C++ does
// not.
constexpr uint32_t kMostAlignment = 16;

struct TransferOp {
  WmmaTransfer transfer;
  Space space;
  uint32_t element_bits;
  uint32_t default_stride;  // in elements, as Op::s[0] has it
  uint32_t alignment;       // of rows, or columns
  uint32_t bytes;           // of the matrix
  std::vector<WmmaPiece> pieces;
};

struct MmaOp {
  WmmaForm form;
  std::array<uint32_t, 4> counts;  // registers of d, a, b, c, which follow one another
};

void require_whole_warp(uint32_t active) {
  if (active != kAllLanes) fault("'wmma' needs all 32 lanes, it has mask 0x%x", active);
}

// A value that has to be the same in all lanes.
template <class F>
uint64_t common(const char* name, F value_of_lane) {
  const uint64_t first = value_of_lane(0);
  for (int lane = 1; lane < kLanes; ++lane) {
    const uint64_t other = value_of_lane(lane);
    if (other != first) {
      fault("wmma has the %s 0x%" PRIx64 " in lane 0 and 0x%" PRIx64
            " in lane %d: it must be the same in all lanes",
            name, first, other, lane);
    }
  }
  return first;
}

struct Matrix {
  uint64_t address;
  uint64_t stride;  // bytes
};

Matrix matrix_of(const Warp& warp, const Op& op) {
  const auto& form = *static_cast<const TransferOp*>(op.form);
  Matrix matrix{};
  matrix.address = common("address", [&](int lane) { return warp.address(op, lane); });
  uint64_t stride = form.default_stride;
  if (op.s[0].present()) {
    stride = common("stride", [&](int lane) { return warp.value(op.s[0], lane); });
  }
  const uint64_t bits = stride * form.element_bits;
  matrix.stride = bits / 8;
  if (matrix.address % form.alignment != 0 || bits % (8 * form.alignment) != 0) {
    fault_of(FaultKind::kMisaligned,
             "wmma has the address 0x%" PRIx64 " and a stride of %" PRIu64
             " elements: every row, or column of a column-major matrix, must begin at a multiple "
             "of %u bytes",
             matrix.address, stride, form.alignment);
  }
  return matrix;
}

// Calls f(piece, bytes in memory) for all parts of the fragment.
template <class F>
void for_each_piece(Warp& warp, const Op& op, Touch touch, F f) {
  const auto& form = *static_cast<const TransferOp*>(op.form);
  const Matrix matrix = matrix_of(warp, op);
  Checker* checker = checker_of(warp.cluster());
  for (const WmmaPiece& piece : form.pieces) {
    const uint64_t address = matrix.address + piece.line * matrix.stride + piece.in_line;
    if (checker != nullptr) {
      checker->generic_lane(warp, op, piece.lane, form.space, address, piece.bytes, touch);
    }
    f(piece, resolve(warp, form.space, piece.lane, address, piece.bytes, 1));
  }
  if (Counters* counters = warp.cluster().counters()) {
    const bool reads = touch == Touch::kRead;
    counters->accessed(warp, form.space, matrix.address, reads ? form.bytes : 0,
                       reads ? 0 : form.bytes);
  }
}

// S is the storage of a register.
template <class S>
Step load_fragment(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(active);
  // A load may overwrite the register of its address.
  std::array<std::array<S, kLanes>, kMostWmmaRegisters> loaded{};
  for_each_piece(warp, op, Touch::kRead, [&](const WmmaPiece& piece, const uint8_t* from) {
    auto* to = reinterpret_cast<uint8_t*>(&loaded[piece.reg][piece.lane]);
    std::memcpy(to + piece.first, from, piece.bytes);
  });
  const Ref* refs = warp.program().refs.data() + op.first;
  for (uint32_t i = 0; i < op.count; ++i) {
    if (refs[i].present()) std::copy_n(loaded[i].data(), kLanes, warp.lanes<S>(refs[i]));
  }
  return Step::kNext;
}

template <class S>
Step store_fragment(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(active);
  const Ref* refs = warp.program().refs.data() + op.first;
  for_each_piece(warp, op, Touch::kWrite, [&](const WmmaPiece& piece, uint8_t* to) {
    const S* lanes = warp.lanes<S>(refs[piece.reg]);
    const auto* from = reinterpret_cast<const uint8_t*>(lanes + piece.lane);
    std::memcpy(to, from + piece.first, piece.bytes);
  });
  return Step::kNext;
}

template <class T>
using Registers = std::array<T*, kMostWmmaRegisters>;

// d, a, b and c.
template <class T>
std::array<Registers<T>, 4> registers_of(const Warp& warp, const Op& op) {
  const Ref* ref = warp.program().refs.data() + op.first;
  const auto& counts = static_cast<const MmaOp*>(op.form)->counts;
  std::array<Registers<T>, 4> result{};
  for (std::size_t operand = 0; operand < 4; ++operand) {
    for (std::size_t i = 0; i < counts[operand]; ++i) {
      result[operand][i] = warp.lanes<T>(*ref++);
    }
  }
  return result;
}

Step multiply(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(active);
  const auto [d, a, b, c] = registers_of<uint32_t>(warp, op);
  wmma_multiply(static_cast<const MmaOp*>(op.form)->form, d.data(), a.data(), b.data(), c.data());
  return Step::kNext;
}

Step multiply_double(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(active);
  const auto [d, a, b, c] = registers_of<uint64_t>(warp, op);
  wmma_multiply_double(d.data(), a.data(), b.data(), c.data());
  return Step::kNext;
}

WmmaShape take_shape(Decoder& decoder) {
  WmmaShape shape{};
  const std::string name = decoder.modifiers.take_first();
  char rest;
  if (std::sscanf(name.c_str(), "m%dn%dk%d%c", &shape.m, &shape.n, &shape.k, &rest) != 3) {
    decoder.fail("it needs a shape");
  }
  return shape;
}

bool take_is_column_major(Decoder& decoder) {
  const std::string layout = decoder.modifiers.take_first();
  if (layout != "row" && layout != "col") decoder.fail("it needs .row or .col");
  return layout == "col";
}

Type take_element_type(Decoder& decoder) {
  const Type type = decoder.modifiers.take_type();
  if (type == Type::kNone) decoder.fail("it lacks a type");
  return type;
}

void expect_registers(const Decoder& decoder, const char* operand, uint32_t found, int expected) {
  if (found != static_cast<uint32_t>(expected)) {
    decoder.fail("its operand " + std::string(operand) + " has " + std::to_string(found) +
                 " registers, it needs " + std::to_string(expected));
  }
}

template <class Form>
void check(const Decoder& decoder, const Form& form) {
  try {
    check_wmma(form);
  } catch (const Fault& error) {
    decoder.fail(error.what());
  }
}

void decode_transfer(Decoder& decoder, bool load) {
  Modifiers& modifiers = decoder.modifiers;
  const int operand = load ? modifiers.take_one({"a", "b", "c"}) : modifiers.take("d") ? 2 : -1;
  if (operand < 0) decoder.fail(load ? "it needs .a, .b or .c" : "it needs .d");
  modifiers.take_all({"sync", "aligned"});
  const int space = modifiers.take_one({"global", "shared", "shared::cta"});
  TransferOp result{};
  result.space = space < 0 ? Space::kGeneric : space == 0 ? Space::kGlobal : Space::kShared;
  WmmaTransfer& transfer = result.transfer;
  transfer.operand = static_cast<WmmaOperand>(operand);
  transfer.type = take_element_type(decoder);
  transfer.column_major = modifiers.take_one({"row", "col"}) == 1;
  transfer.shape = take_shape(decoder);
  check(decoder, transfer);

  result.element_bits = static_cast<uint32_t>(wmma_element_bits(transfer.type));
  const WmmaLines lines = wmma_lines(transfer);
  result.default_stride = static_cast<uint32_t>(lines.elements);
  const auto elements = static_cast<uint32_t>(lines.count * lines.elements);
  result.bytes = elements * result.element_bits / 8;
  result.pieces = wmma_pieces(transfer);
  const int width = transfer.type == Type::kF64 ? 64 : 32;
  const int registers = wmma_registers(transfer.operand, transfer.shape, transfer.type);
  result.alignment = std::min(static_cast<uint32_t>(registers * width / 8), kMostAlignment);

  decoder.expect_count(2, 3);
  decoder.op.flow = Flow::kSync;
  decoder.op.address = decoder.address(decoder.operand(load ? 1 : 0));
  if (decoder.count() == 3) {
    decoder.op.s[0] = decoder.source(decoder.operand(2), Type::kU32);
  }
  if (load) {
    decoder.destinations(decoder.operand(0), width);
    decoder.op.run = width == 64 ? load_fragment<uint64_t> : load_fragment<uint32_t>;
  } else {
    decoder.sources(decoder.operand(1), width == 64 ? Type::kB64 : Type::kB32);
    decoder.op.run = width == 64 ? store_fragment<uint64_t> : store_fragment<uint32_t>;
  }
  expect_registers(decoder, load ? "1" : "2", decoder.op.count, registers);
  decoder.form(std::move(result));
}

// Of f16 d and c have types; of others d, a, b and c, where those of a and b are the same.
void take_types(Decoder& decoder, WmmaForm& form) {
  form.d = take_element_type(decoder);
  const Type second = take_element_type(decoder);
  const Type third = decoder.modifiers.take_type();
  if (third == Type::kNone) {
    form.operand = Type::kF16;
    form.c = second;
    return;
  }
  form.operand = second;
  form.c = take_element_type(decoder);
  if (second == Type::kF16) decoder.fail("of f16 it has two types, those of D and of C");
  if (third != second) decoder.fail("it needs the same type for A and for B");
}

void decode_multiply(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  MmaOp result{};
  WmmaForm& form = result.form;
  const int operation = modifiers.take_one({"xor", "and"});
  if (operation >= 0) {
    form.bits = operation == 0 ? BitOperation::kXor : BitOperation::kAnd;
    if (!modifiers.take("popc")) decoder.fail("it needs .popc");
  }
  modifiers.take_all({"sync", "aligned"});
  form.satfinite = modifiers.take("satfinite");
  form.a_column_major = take_is_column_major(decoder);
  form.b_column_major = take_is_column_major(decoder);
  form.shape = take_shape(decoder);
  const int rounding = modifiers.take_one({"rn", "rz", "rm", "rp"});
  take_types(decoder, form);
  check(decoder, form);
  const bool wide = form.operand == Type::kF64;
  if (rounding >= 0 && !wide) decoder.fail("only f64 has a rounding mode");

  decoder.expect_count(4, 4);
  const Type types[] = {form.d, form.operand, form.operand, form.c};
  constexpr WmmaOperand kOperands[] = {WmmaOperand::kC, WmmaOperand::kA, WmmaOperand::kB,
                                       WmmaOperand::kC};
  constexpr const char* kNames[] = {"1", "2", "3", "4"};
  const auto first = static_cast<uint32_t>(decoder.refs().size());
  for (std::size_t i = 0; i < 4; ++i) {
    if (i == 0) {
      decoder.destinations(decoder.operand(i), wide ? 64 : 32);
    } else {
      decoder.sources(decoder.operand(i), wide ? Type::kB64 : Type::kB32);
    }
    expect_registers(decoder, kNames[i], decoder.op.count,
                     wmma_registers(kOperands[i], form.shape, types[i]));
    result.counts[i] = decoder.op.count;
  }
  decoder.op.flow = Flow::kSync;
  decoder.op.first = first;
  decoder.form(result);
  decoder.op.run = wide ? with_rounding<multiply_double>(rounding) : multiply;
}

void decode_wmma(Decoder& decoder) {
  const int action = decoder.modifiers.take_one({"load", "mma", "store"});
  if (action < 0) decoder.fail("it needs .load, .mma or .store");
  if (action == 1) return decode_multiply(decoder);
  decode_transfer(decoder, action == 0);
}

}  // namespace

void add_wmma_ops(DecodeTable& table) { table["wmma"] = decode_wmma; }

}  // namespace warploom::emulator
