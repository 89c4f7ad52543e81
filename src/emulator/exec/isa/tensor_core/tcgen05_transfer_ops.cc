// tcgen05.ld and tcgen05.st: registers of a warp and tensor memory.

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "emulator/check/tensor_memory_check.h"
#include "emulator/exec/isa/tensor_core/tcgen05.h"
#include "emulator/exec/machine/counters.h"
#include "emulator/tensor/tensor_fragment.h"

namespace warploom::emulator {
namespace {

struct TransferForm {
  TensorFragment fragment;
  std::vector<Ref> registers;
};

const TransferForm& form_of(const Op& op) { return *static_cast<const TransferForm*>(op.form); }

using Registers = std::array<uint32_t*, kMostFragmentRegisters>;

Registers registers_of(const Warp& warp, const TransferForm& form) {
  Registers result{};
  for (std::size_t i = 0; i < form.registers.size(); ++i) {
    result[i] = warp.lanes<uint32_t>(form.registers[i]);
  }
  return result;
}

uint64_t bytes_of(const TensorFragment& fragment) {
  const uint64_t accesses = fragment.shape == kSplitShape ? 2 : 1;
  return accesses * fragment.rows() * fragment.columns() * sizeof(uint32_t);
}

Step load(Warp& warp, const Op& op, uint32_t active) {
  check_whole_warp(warp, active);
  const TransferForm& form = form_of(op);
  const TensorAddress base =
      fragment_base(form.fragment, warp.id(), uniform_tensor_address(warp, op));
  const Registers registers = registers_of(warp, form);
  if (Checker* checker = checker_of(warp.cluster())) {
    TensorMemoryCheck::Accessor accessor = checker->tensor_memory().load(warp, op);
    visit_fragment(form.fragment, base, [&](uint32_t lane, uint32_t column, uint32_t columns) {
      accessor.read(warp.cta().rank(), lane, column, columns);
    });
  }
  if (Counters* counters = warp.cluster().counters()) {
    counters->moved(Path::kTensorMemory, bytes_of(form.fragment), 0);
  }
  load_fragment(form.fragment, warp.cta().tensor_memory(), base, registers.data());
  return Step::kNext;
}

Step store(Warp& warp, const Op& op, uint32_t active) {
  check_whole_warp(warp, active);
  const TransferForm& form = form_of(op);
  const TensorAddress base =
      fragment_base(form.fragment, warp.id(), uniform_tensor_address(warp, op));
  const Registers registers = registers_of(warp, form);
  if (Checker* checker = checker_of(warp.cluster())) {
    TensorMemoryCheck::Accessor accessor = checker->tensor_memory().store(warp, op);
    visit_fragment(form.fragment, base, [&](uint32_t lane, uint32_t column, uint32_t columns) {
      accessor.write(warp.cta().rank(), lane, column, columns);
    });
  }
  if (Counters* counters = warp.cluster().counters()) {
    counters->moved(Path::kTensorMemory, 0, bytes_of(form.fragment));
  }
  store_fragment(form.fragment, warp.cta().tensor_memory(), base, registers.data());
  return Step::kNext;
}

TensorFragment take_fragment(Decoder& decoder, std::string_view packing) {
  TensorFragment fragment;
  fragment.shape = decoder.modifiers.take_one({kTensorShapes[0].name, kTensorShapes[1].name,
                                               kTensorShapes[2].name, kTensorShapes[3].name,
                                               kTensorShapes[4].name});
  if (fragment.shape < 0) {
    decoder.fail("it needs a shape: .16x64b, .16x128b, .16x256b, .32x32b or .16x32bx2");
  }
  const int power =
      decoder.modifiers.take_one({"x1", "x2", "x4", "x8", "x16", "x32", "x64", "x128"});
  if (power < 0) decoder.fail("it needs a number of repetitions, .x1 to .x128");
  fragment.repetitions = 1u << power;
  fragment.halves = decoder.modifiers.take(packing);
  if (!decoder.modifiers.take("b32")) decoder.fail("it needs .b32");
  try {
    check_fragment(fragment);
  } catch (const Fault& error) {
    decoder.fail(error.what());
  }
  return fragment;
}

// The operands are registers and [taddr] in either order, and the offset of .16x32bx2 behind
// [taddr].
void decode_transfer(Decoder& decoder, TensorFragment fragment, bool loads) {
  const bool split = fragment.shape == kSplitShape;
  decoder.expect_count(split ? 3 : 2, split ? 3 : 2);
  const std::size_t address = loads ? 1 : 0;
  decoder.op.address = decoder.address(decoder.operand(address));
  if (split) {
    const int64_t offset = decoder.integer(decoder.operand(address + 1));
    if (offset < 0 || offset >= kTensorColumns) {
      decoder.fail("the offset of its second half must be 0 to 511 columns");
    }
    fragment.split_offset = static_cast<uint32_t>(offset);
  }
  TransferForm form;
  form.fragment = fragment;
  form.registers = take_tensor_registers(decoder,
                                         decoder.operand(loads   ? 0
                                                         : split ? 2
                                                                 : 1),
                                         loads);
  if (form.registers.size() != fragment.registers()) {
    decoder.fail("it has " + std::to_string(form.registers.size()) +
                 " registers; its shape needs " + std::to_string(fragment.registers()));
  }
  decoder.form(std::move(form));
  decoder.op.run = loads ? load : store;
}

}  // namespace

void decode_tcgen05_load(Decoder& decoder) {
  if (decoder.modifiers.take("red")) {
    decoder.fail("tcgen05.ld.red exists for sm_103f and sm_110f, not for sm_100");
  }
  take_aligned(decoder);
  decode_transfer(decoder, take_fragment(decoder, "pack::16b"), true);
}

void decode_tcgen05_store(Decoder& decoder) {
  take_aligned(decoder);
  decode_transfer(decoder, take_fragment(decoder, "unpack::16b"), false);
}

}  // namespace warploom::emulator
