// mma.sync: the products are in matrix/mma.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/tensor_core/families.h"
#include "emulator/matrix/mma.h"

namespace warploom::emulator {
namespace {

struct MmaOp {
  MmaForm form;
  uint32_t counts[4];  // registers of d, a, b, c, which follow one another
};

constexpr std::size_t kMostRegisters = 8;

template <class T>
using Registers = std::array<T*, kMostRegisters>;

template <class T>
struct Operands {
  Registers<T> d, a, b, c;
};

template <class T>
Registers<T> registers_at(const Warp& warp, uint32_t* first, uint32_t count) {
  Registers<T> result{};
  const Ref* refs = warp.program().refs.data() + *first;
  for (uint32_t i = 0; i < count; ++i) result[i] = warp.lanes<T>(refs[i]);
  *first += count;
  return result;
}

template <class T>
Operands<T> operands_of(const Warp& warp, const Op& op) {
  const auto& counts = static_cast<const MmaOp*>(op.form)->counts;
  uint32_t first = op.first;
  Operands<T> result;
  result.d = registers_at<T>(warp, &first, counts[0]);
  result.a = registers_at<T>(warp, &first, counts[1]);
  result.b = registers_at<T>(warp, &first, counts[2]);
  result.c = registers_at<T>(warp, &first, counts[3]);
  return result;
}

void require_whole_warp(const Warp& warp, uint32_t active) {
  if (active != kAllLanes) {
    fault("'%s' needs all 32 lanes, it has mask 0x%x", warp.current_op()->source->opcode.c_str(),
          active);
  }
}

Step multiply(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(warp, active);
  const Operands<uint32_t> x = operands_of<uint32_t>(warp, op);
  const MmaForm& form = static_cast<const MmaOp*>(op.form)->form;
  const uint32_t* metadata = form.sparse ? warp.lanes<uint32_t>(op.s[0]) : nullptr;
  mma_sync(form, x.d.data(), x.a.data(), x.b.data(), x.c.data(), metadata);
  return Step::kNext;
}

Step multiply_double(Warp& warp, const Op& op, uint32_t active) {
  require_whole_warp(warp, active);
  const Operands<uint64_t> x = operands_of<uint64_t>(warp, op);
  const MmaForm& form = static_cast<const MmaOp*>(op.form)->form;
  mma_sync_double(form, x.d.data(), x.a.data(), x.b.data(), x.c.data());
  return Step::kNext;
}

Type take_element_type(Decoder& decoder) {
  Type type = decoder.modifiers.take_type();
  if (type == Type::kNone) decoder.fail("it needs four types");
  return type;
}

// Modifiers come in the order of A and B.
bool take_is_column_major(Decoder& decoder) {
  const std::string layout = decoder.modifiers.take_first();
  if (layout != "row" && layout != "col") decoder.fail("it needs .row or .col for A and for B");
  return layout == "col";
}

MmaForm take_form(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  MmaForm form{};
  form.ordered = modifiers.take("sp::ordered_metadata");
  form.sparse = form.ordered || modifiers.take("sp");
  modifiers.take_all({"sync", "aligned"});
  std::string shape = modifiers.take_first();
  if (std::sscanf(shape.c_str(), "m%dn%dk%d", &form.m, &form.n, &form.k) != 3) {
    decoder.fail("it needs a shape");
  }
  form.a_column_major = take_is_column_major(decoder);
  form.b_row_major = !take_is_column_major(decoder);
  form.satfinite = modifiers.take("satfinite");
  form.d = take_element_type(decoder);
  form.a = take_element_type(decoder);
  form.b = take_element_type(decoder);
  form.c = take_element_type(decoder);
  const int operation = modifiers.take_one({"xor", "and"});
  if (operation >= 0) {
    form.bits = operation == 0 ? BitOperation::kXor : BitOperation::kAnd;
    if (!modifiers.take("popc")) decoder.fail("it needs .popc");
  }
  return form;
}

// Registers of d, a, b and c.
std::array<uint32_t, 4> register_counts(const MmaForm& form) {
  if (is_quarter(form)) {
    const auto words = [](Type type) { return type == Type::kF16 ? 4u : 8u; };
    return {words(form.d), 2, 2, words(form.c)};
  }
  const int register_bits = form.a == Type::kF64 ? 64 : 32;
  const auto count = [&](int rows, int columns, Type type) {
    return static_cast<uint32_t>(rows * columns * type_bits(type) / register_bits / kLanes);
  };
  return {count(form.m, form.n, form.d), count(form.m, form.sparse ? form.k / 2 : form.k, form.a),
          count(form.k, form.n, form.b), count(form.m, form.n, form.c)};
}

void decode_mma(Decoder& decoder) {
  MmaOp result{take_form(decoder), {}};
  MmaForm& form = result.form;
  const std::size_t operands = form.sparse ? 6 : 4;
  decoder.expect_count(operands, operands);
  if (form.sparse) {
    decoder.op.s[0] = decoder.source(decoder.operand(4), Type::kB32);
    const int64_t selector = decoder.integer(decoder.operand(5));
    if (selector < 0 || selector > 3) decoder.fail("its sparsity selector must be 0 to 3");
    form.selector = static_cast<int>(selector);
  }
  try {
    check_mma(form);
  } catch (const Fault& error) {
    decoder.fail(error.what());
  }
  const bool wide = form.a == Type::kF64;
  const std::array<uint32_t, 4> expected = register_counts(form);
  const auto first = static_cast<uint32_t>(decoder.refs().size());
  for (std::size_t i = 0; i < 4; ++i) {
    if (i == 0) {
      decoder.destinations(decoder.operand(i), wide ? 64 : 32);
    } else {
      decoder.sources(decoder.operand(i), wide ? Type::kB64 : Type::kB32);
    }
    if (decoder.op.count != expected[i]) {
      decoder.fail("its operand " + std::to_string(i + 1) + " has " +
                   std::to_string(decoder.op.count) + " registers, it needs " +
                   std::to_string(expected[i]));
    }
    result.counts[i] = decoder.op.count;
  }
  decoder.op.flow = Flow::kSync;
  decoder.op.first = first;
  decoder.form(result);
  decoder.op.run = wide ? multiply_double : multiply;
}

}  // namespace

void add_mma_ops(DecodeTable& table) { table["mma"] = decode_mma; }

}  // namespace warploom::emulator
