// ldmatrix, stmatrix and movmatrix; the fragments are in matrix/.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/tensor_core/families.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/matrix/byte_matrix.h"
#include "emulator/matrix/ldmatrix.h"

namespace warploom::emulator {
namespace {

constexpr std::size_t kMostRegisters = 4;
using Registers = std::array<uint32_t*, kMostRegisters>;

Registers registers_at(const Warp& warp, uint32_t first, uint32_t count) {
  Registers result{};
  const Ref* refs = warp.program().refs.data() + first;
  for (uint32_t i = 0; i < count; ++i) result[i] = warp.lanes<uint32_t>(refs[i]);
  return result;
}

void require_whole_warp(const Warp& warp, uint32_t active) {
  if (active != kAllLanes) {
    fault("'%s' needs all 32 lanes, it has mask 0x%x", warp.current_op()->source->opcode.c_str(),
          active);
  }
}

// A generic address has the shared one in its low half.
std::array<uint32_t, kLanes> row_offsets(const Warp& warp, const Op& op) {
  std::array<uint32_t, kLanes> offsets;
  for (int lane = 0; lane < kLanes; ++lane) {
    auto address = static_cast<uint32_t>(warp.address(op, lane));
    offsets[static_cast<std::size_t>(lane)] = shared_offset(address);
  }
  return offsets;
}

// A row is 16 bytes, at the address of a lane. Of a matrix of 8 by 8 that is not transposed, lanes
// 4 r to 4 r + 3 have the words of row r.
void note(Warp& warp, const Op& op, Touch touch) {
  Checker* checker = checker_of(warp.cluster());
  if (checker == nullptr) return;
  const auto& form = *static_cast<const MatrixForm*>(op.form);
  uint32_t lanes = form.rows() == kLanes ? kAllLanes : (1u << form.rows()) - 1;
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    int lane = __builtin_ctz(left);
    uint64_t address = warp.address(op, lane) & 0xffffffffu;
    checker->generic_lane(warp, op, lane, ptx::Space::kShared, address, 16, touch);
    const bool plain = form.shape == MatrixShape::kM8n8 && !form.trans;
    const uint32_t first = plain ? 4 * (static_cast<uint32_t>(lane) % 8) : uint32_t{kLanes};
    checker->matrix_row(warp, op, lane, first, touch == Touch::kWrite);
  }
}

Step load_matrix(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(warp, active);
  note(warp, op, Touch::kRead);
  Registers d = registers_at(warp, op.first, op.count);
  const auto& form = *static_cast<const MatrixForm*>(op.form);
  const auto load = form.shape == MatrixShape::kM8n8 ? ldmatrix : load_byte_matrix;
  load(form, row_offsets(warp, op).data(), d.data(), warp.cta().shared());
  return Step::kNext;
}

Step store_matrix(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(warp, active);
  note(warp, op, Touch::kWrite);
  Registers a = registers_at(warp, op.first, op.count);
  const auto& form = *static_cast<const MatrixForm*>(op.form);
  const auto store = form.shape == MatrixShape::kM8n8 ? stmatrix : store_byte_matrix;
  store(form, row_offsets(warp, op).data(), a.data(), warp.cta().shared());
  return Step::kNext;
}

// The type of the elements has to fit the shape.
void take_elements(Decoder& decoder, MatrixForm& form, bool load) {
  Modifiers& modifiers = decoder.modifiers;
  if (form.shape == MatrixShape::kM8n8) {
    if (modifiers.take_type() != Type::kB16) decoder.fail(".m8n8 takes .b16");
    return;
  }
  const bool wide = form.shape == MatrixShape::kM16n16;
  if (form.trans == (form.shape == MatrixShape::kM8n16)) {
    decoder.fail(".m16n16 and .m16n8 need .trans, .m8n16 has none");
  }
  if (wide && form.count == 4) decoder.fail(".m16n16 takes .x1 or .x2");
  if (load && modifiers.take("b8x16")) {
    const int packed = modifiers.take_one({"b6x16_p32", "b4x16_p64"});
    if (packed < 0) decoder.fail(".b8x16 needs .b6x16_p32 or .b4x16_p64");
    form.packed_bits = packed == 0 ? 6 : 4;
  } else if (form.shape == MatrixShape::kM8n16 || modifiers.take_type() != Type::kB8) {
    decoder.fail(".m16n16 and .m16n8 take .b8; a load of .m8n16 or .m16n16 may be .b8x16");
  }
}

void decode_matrix(Decoder& decoder, bool load) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take_all({"sync", "aligned"});
  MatrixForm form{};
  if (load) {
    static constexpr MatrixShape kShapes[] = {MatrixShape::kM8n8, MatrixShape::kM8n16,
                                              MatrixShape::kM16n16};
    const int shape = modifiers.take_one({"m8n8", "m8n16", "m16n16"});
    if (shape < 0) decoder.fail("it needs .m8n8, .m8n16 or .m16n16");
    form.shape = kShapes[shape];
  } else {
    const int shape = modifiers.take_one({"m8n8", "m16n8"});
    if (shape < 0) decoder.fail("it needs .m8n8 or .m16n8");
    if (shape == 1) form.shape = MatrixShape::kM16n8;
  }
  form.trans = modifiers.take("trans");
  int count = modifiers.take_one({"x1", "x2", "x4"});
  if (count < 0) decoder.fail("it needs .x1, .x2 or .x4");
  form.count = 1 << count;
  take_space(decoder);
  take_elements(decoder, form, load);
  decoder.expect_count(2, 2);
  decoder.op.flow = Flow::kSync;
  decoder.op.address = decoder.address(decoder.operand(load ? 1 : 0));
  if (load) {
    decoder.destinations(decoder.operand(0), 32);
  } else {
    decoder.sources(decoder.operand(1), Type::kB32);
  }
  if (decoder.op.count != static_cast<uint32_t>(form.registers())) {
    decoder.fail("it has a wrong number of registers");
  }
  decoder.form(form);
  decoder.op.run = load ? load_matrix : store_matrix;
}

void decode_ldmatrix(Decoder& decoder) { decode_matrix(decoder, true); }

void decode_stmatrix(Decoder& decoder) { decode_matrix(decoder, false); }

// Lane l holds the elements (l / 4, 2 (l % 4)) and the next of a matrix of 8 by 8, and gets those
// of its transpose.
Step transpose(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(warp, active);
  std::array<uint32_t, kLanes> source;
  std::copy_n(warp.lanes<uint32_t>(op.s[0]), kLanes, source.begin());
  uint32_t* d = warp.lanes<uint32_t>(op.d);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t column = lane / 4, row = lane % 4 * 2;
    const uint32_t shift = column % 2 * 16;
    const uint32_t low = source[row * 4 + column / 2] >> shift & 0xffff;
    d[lane] = source[(row + 1) * 4 + column / 2] >> shift << 16 | low;
  }
  return Step::kNext;
}

void decode_movmatrix(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take_all({"sync", "aligned"});
  if (!modifiers.take("m8n8") || !modifiers.take("trans") ||
      modifiers.take_type() != Type::kB16) {
    decoder.fail("it needs .m8n8.trans.b16");
  }
  decode_uniform(decoder, Type::kB32, 1);
  decoder.op.flow = Flow::kSync;
  decoder.op.run = transpose;
}

}  // namespace

void add_matrix_ops(DecodeTable& table) {
  table["ldmatrix"] = decode_ldmatrix;
  table["stmatrix"] = decode_stmatrix;
  table["movmatrix"] = decode_movmatrix;
}

}  // namespace warploom::emulator
