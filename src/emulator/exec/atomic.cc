// atom and red (PTX ISA, "Parallel Synchronization and Communication Instructions").

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/async/bulk_copy.h"
#include "emulator/check/checker.h"
#include "emulator/exec/access.h"
#include "emulator/exec/cluster.h"
#include "emulator/exec/lanes.h"

namespace warploom::emulator {
namespace {

struct AtomicForm {
  ptx::Space space = ptx::Space::kGeneric;
  Type type = Type::kNone;
  enum Kind : uint8_t { kReduce, kExchange, kCompare } kind = kReduce;
  Reduction reduction = Reduction::kNone;
  Order order = Order::kRelaxed;
};

// Lanes take effect one after the other, in order.
Step atomic(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const AtomicForm*>(op.form);
  auto bytes = static_cast<uint32_t>(type_bits(form.type)) / 8;
  if (Checker* checker = warp.cluster().checker()) {
    checker->generic(warp, op, active, form.space, bytes, Touch::kReadWrite, form.order);
  }
  for_each_lane(active, [&](int lane) {
    uint8_t* memory = resolve(warp, form.space, lane, warp.address(op, lane), bytes, bytes);
    uint64_t old = 0;
    std::memcpy(&old, memory, bytes);
    uint64_t operand = warp.value(op.s[0], lane);
    if (form.kind == AtomicForm::kReduce) {
      bulk_reduce(form.type, form.reduction, memory, reinterpret_cast<uint8_t*>(&operand), bytes);
    } else if (form.kind == AtomicForm::kExchange) {
      std::memcpy(memory, &operand, bytes);
    } else if (std::memcmp(&old, &operand, bytes) == 0) {
      uint64_t replacement = warp.value(op.s[1], lane);
      std::memcpy(memory, &replacement, bytes);
    }
    if (op.d.present()) warp.set_value(op.d, lane, old);
  });
  return Step::kNext;
}

// .relaxed if nothing is said (PTX ISA, "atom").
Order take_order(Decoder& decoder) {
  static constexpr Order kOrders[] = {Order::kRelaxed, Order::kAcquire, Order::kRelease,
                                      Order::kAcquireRelease};
  decoder.modifiers.take_all({"cta", "cluster", "gpu", "sys", "noftz"});
  int index = decoder.modifiers.take_one({"relaxed", "acquire", "release", "acq_rel"});
  return index < 0 ? Order::kRelaxed : kOrders[index];
}

AtomicForm take_form(Decoder& decoder) {
  AtomicForm form;
  form.order = take_order(decoder);
  form.space = take_space(decoder);
  int index = decoder.modifiers.take_one(
      {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  if (index < 0) decoder.fail("its operation is not supported");
  form.kind = index == 9 ? AtomicForm::kCompare
              : index == 8 ? AtomicForm::kExchange
                           : AtomicForm::kReduce;
  static constexpr Reduction kReductions[] = {
      Reduction::kAdd, Reduction::kMin, Reduction::kMax, Reduction::kInc,
      Reduction::kDec, Reduction::kAnd, Reduction::kOr,  Reduction::kXor};
  if (form.kind == AtomicForm::kReduce) form.reduction = kReductions[index];
  form.type = decoder.modifiers.take_type();
  if (form.type == Type::kNone || type_bits(form.type) > 64) decoder.fail("it needs a type");
  if (form.kind == AtomicForm::kReduce) check_reduction(form.type, form.reduction);
  return form;
}

void decode_atomic(Decoder& decoder, std::size_t first) {
  AtomicForm form = take_form(decoder);
  Op& op = decoder.op;
  if (first == 1) op.d = decoder.destination(decoder.operand(0), type_bits(form.type));
  op.address = decoder.address(decoder.operand(first));
  std::size_t operands = form.kind == AtomicForm::kCompare ? 2 : 1;
  decoder.expect_count(first + 1 + operands, first + 1 + operands);
  for (std::size_t i = 0; i < operands; ++i) {
    op.s[i] = decoder.source(decoder.operand(first + 1 + i), form.type);
  }
  decoder.form(form);
  op.run = atomic;
}

void decode_atom(Decoder& decoder) { decode_atomic(decoder, 1); }

void decode_red(Decoder& decoder) { decode_atomic(decoder, 0); }

}  // namespace

void add_atomic_ops(DecodeTable& table) {
  table["atom"] = decode_atom;
  table["red"] = decode_red;
}

}  // namespace warploom::emulator
