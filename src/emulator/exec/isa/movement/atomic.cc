// atom and red (PTX ISA, "Parallel Synchronization and Communication Instructions").

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "emulator/async/bulk_copy.h"
#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/memory_hints.h"
#include "emulator/exec/isa/movement/families.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

struct AtomicForm {
  ptx::Space space = ptx::Space::kGeneric;
  Type type = Type::kNone;     // of a register
  Type element = Type::kNone;  // of what is reduced: one half of a pair
  uint32_t count = 1;          // registers of a vector
  enum Kind : uint8_t { kReduce, kExchange, kCompare } kind = kReduce;
  Reduction reduction = Reduction::kNone;
  Ordering ordering;

  uint32_t register_bytes() const { return static_cast<uint32_t>(type_bits(type)) / 8; }
  uint32_t bytes() const { return count * register_bytes(); }
};

// Vectors are for these reductions only, and of so many registers at most.
struct VectorRule {
  Type type;
  bool extrema;  // .min and .max, beside .add
  uint32_t most;
};

constexpr VectorRule kVectorRules[] = {{Type::kF32, false, 4},
                                       {Type::kF16, true, 8},
                                       {Type::kBf16, true, 8},
                                       {Type::kF16x2, true, 4},
                                       {Type::kBf16x2, true, 4}};

void note(Warp& warp, const Op& op, uint32_t active, const AtomicForm& form) {
  Checker* checker = checker_of(warp.cluster());
  if (checker == nullptr) return;
  checker->generic(warp, op, active, form.space, form.bytes(), Touch::kReadWrite,
                   form.ordering);
}

// Lanes take effect one after the other, in order.
Step atomic(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const AtomicForm*>(op.form);
  const uint32_t bytes = form.bytes();
  note(warp, op, active, form);
  for_each_lane(active, [&](int lane) {
    uint8_t* memory = resolve(warp, form.space, lane, warp.address(op, lane), bytes, bytes);
    uint64_t old = 0;
    std::memcpy(&old, memory, bytes);
    uint64_t operand = warp.value(op.s[0], lane);
    if (form.kind == AtomicForm::kReduce) {
      bulk_reduce(form.element, form.reduction, memory, reinterpret_cast<uint8_t*>(&operand),
                  bytes);
    } else if (form.kind == AtomicForm::kExchange) {
      std::memcpy(memory, &operand, bytes);
    } else if (std::memcmp(&old, &operand, bytes) == 0) {
      uint64_t replacement = warp.value(op.s[1], lane);
      std::memcpy(memory, &replacement, bytes);
    }
    if (std::memcmp(&old, memory, bytes) != 0) warp.cluster().note_change();
    if (op.d.present()) warp.set_value(op.d, lane, old);
  });
  return Step::kNext;
}

// The registers are those of the operand and, of atom, those of the result behind them.
Step vector_atomic(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const AtomicForm*>(op.form);
  const uint32_t bytes = form.bytes(), each = form.register_bytes();
  const Ref* operands = warp.program().refs.data() + op.first;
  const Ref* results = op.count > form.count ? operands + form.count : nullptr;
  note(warp, op, active, form);
  for_each_lane(active, [&](int lane) {
    const uint64_t address = warp.address(op, lane);
    if (form.space == ptx::Space::kGeneric && (address & kWindowMask) == kSharedWindow) {
      fault("an atomic operation on a vector needs global memory; 0x%llx is shared memory",
            static_cast<unsigned long long>(address));
    }
    uint8_t* memory = resolve(warp, form.space, lane, address, bytes, bytes);
    for (uint32_t i = 0; i < form.count; ++i, memory += each) {
      uint64_t old = 0;
      std::memcpy(&old, memory, each);
      uint64_t operand = warp.value(operands[i], lane);
      bulk_reduce(form.element, form.reduction, memory, reinterpret_cast<uint8_t*>(&operand),
                  each);
      if (results != nullptr) warp.set_value(results[i], lane, old);
    }
  });
  return Step::kNext;
}

Type half_of(Type type) {
  return type == Type::kF16x2 ? Type::kF16 : type == Type::kBf16x2 ? Type::kBf16 : type;
}

bool is_half(Type type) { return half_of(type) == Type::kF16 || half_of(type) == Type::kBf16; }

void check_vector(Decoder& decoder, const AtomicForm& form) {
  if (form.space != ptx::Space::kGlobal && form.space != ptx::Space::kGeneric) {
    decoder.fail("vectors need global memory");
  }
  const bool adds = form.reduction == Reduction::kAdd;
  const bool extremum = form.reduction == Reduction::kMin || form.reduction == Reduction::kMax;
  for (const VectorRule& rule : kVectorRules) {
    if (rule.type != form.type || form.count > rule.most) continue;
    if (adds || (rule.extrema && extremum)) return;
  }
  decoder.fail("vectors are for .add, of f32 (.v2, .v4), and for .add, .min and .max of halves "
               "(.v2, .v4, .v8) and pairs of halves (.v2, .v4)");
}

void check_form(Decoder& decoder, const AtomicForm& form) {
  if (form.type == Type::kNone || type_bits(form.type) > 64) decoder.fail("it needs a type");
  if (form.count > 1) check_vector(decoder, form);
  const int least = form.kind == AtomicForm::kCompare ? 16 : 32;
  if (form.kind != AtomicForm::kReduce && type_bits(form.type) < least) {
    decoder.fail("its type needs at least " + std::to_string(least) + " bits");
  }
  if (form.kind != AtomicForm::kReduce) return;
  if (is_half(form.type) && form.count == 1 && form.reduction != Reduction::kAdd) {
    decoder.fail("halves that are no vector have .add only");
  }
  check_reduction(form.element, form.reduction);
}

AtomicForm take_form(Decoder& decoder) {
  AtomicForm form;
  decoder.modifiers.take("noftz");
  form.ordering = take_atomic_ordering(decoder.modifiers);
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
  int vector = decoder.modifiers.take_one({"v2", "v4", "v8"});
  if (vector >= 0) form.count = 2u << vector;
  form.type = decoder.modifiers.take_type();
  form.element = half_of(form.type);
  check_form(decoder, form);
  return form;
}

void decode_vector(Decoder& decoder, const AtomicForm& form, std::size_t first) {
  Op& op = decoder.op;
  decoder.sources(decoder.operand(first + 1), form.type);
  uint32_t begin = op.first, count = op.count;
  if (count != form.count) decoder.fail("it has a wrong number of registers");
  if (first == 1) {
    decoder.destinations(decoder.operand(0), type_bits(form.type));
    if (op.count != form.count) decoder.fail("it has a wrong number of registers");
    count += op.count;
  }
  op.first = begin;
  op.count = count;
  op.run = vector_atomic;
}

// `first` is the place of the address.
void decode_atomic(Decoder& decoder, std::size_t first) {
  bool policy = decoder.modifiers.take("L2::cache_hint");
  AtomicForm form = take_form(decoder);
  Op& op = decoder.op;
  op.address = decoder.address(decoder.operand(first));
  std::size_t operands = form.kind == AtomicForm::kCompare ? 2 : 1;
  std::size_t count = first + 1 + operands + (policy ? 1 : 0);
  decoder.expect_count(count, count);
  decoder.form(form);
  if (form.count > 1) {
    decode_vector(decoder, form, first);
    return;
  }
  if (first == 1) op.d = decoder.destination(decoder.operand(0), type_bits(form.type));
  for (std::size_t i = 0; i < operands; ++i) {
    op.s[i] = decoder.source(decoder.operand(first + 1 + i), form.type);
  }
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
