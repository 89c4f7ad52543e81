#include "emulator/exec/isa/decoder.h"

#include <cstddef>
#include <cstring>

#include "emulator/base/fault.h"
#include "emulator/exec/machine/call_form.h"
#include "emulator/exec/machine/special.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;

uint64_t literal_bits(const Operand& operand, Type type) {
  auto bits = static_cast<uint64_t>(operand.bits);
  if (operand.kind == Operand::kFloat64 && type == Type::kF32) {
    double wide;
    std::memcpy(&wide, &bits, sizeof(wide));
    auto narrow = static_cast<float>(wide);
    bits = 0;
    std::memcpy(&bits, &narrow, sizeof(narrow));
  } else if (operand.kind == Operand::kFloat32 && type == Type::kF64) {
    auto low = static_cast<uint32_t>(bits);
    float narrow;
    std::memcpy(&narrow, &low, sizeof(narrow));
    double wide = narrow;
    std::memcpy(&bits, &wide, sizeof(wide));
  }
  int width = type_bits(type);
  return width < 64 ? bits & ((uint64_t{1} << width) - 1) : bits;
}

}  // namespace

Decoder::Decoder(Program& program, Values& values, const ProgramFunction& function,
                 const ptx::Instruction& instruction, Op& target)
    : modifiers(instruction),
      op(target),
      program_(program),
      values_(values),
      function_(function),
      instruction_(instruction) {
  op.source = &instruction;
  if (instruction.guard >= 0) {
    Ref guard = values_.register_ref(instruction.guard);
    if (guard.bits != 1) fail("the guard is not a predicate");
    op.guard = guard.offset;
    op.guard_negated = instruction.guard_negated;
  }
}

const Operand& Decoder::operand(std::size_t index) const {
  if (index >= count()) fail("operand " + std::to_string(index + 1) + " is missing");
  return instruction_.operands[index];
}

void Decoder::expect_count(std::size_t least, std::size_t most) const {
  if (count() < least || count() > most) {
    fail("it has " + std::to_string(count()) + " operands, which is not supported");
  }
}

Ref Decoder::destination(const Operand& operand, int bits) const {
  int width = bits <= 1 ? bits : bits <= 32 ? 32 : bits;
  if (operand.kind == Operand::kNone) return width == 0 ? Ref{} : values_.sink(width);
  if (operand.kind != Operand::kRegister) fail("the destination is not a register");
  Ref ref = values_.register_ref(operand.index);
  if (ref.bits == 128 && width != 128) fail("a register of 128 bits takes .b128");
  int wanted = width == 0 ? ref.bits : width;
  if (ref.bits != wanted) {
    fail("the destination register has " + std::to_string(ref.bits) + " bits instead of " +
         std::to_string(wanted));
  }
  return ref;
}

Ref Decoder::second_destination(const Operand& operand) const {
  if (operand.second < 0) return Ref{};
  Operand second;
  second.kind = Operand::kRegister;
  second.index = operand.second;
  return destination(second, 1);
}

Ref Decoder::special(const Operand& operand, bool generic, int bits) const {
  if (operand.kind == Operand::kVariable) {
    return values_.special(operand.variable->name, operand.variable, generic,
                           bits == 0 ? 64 : bits);
  }
  int natural = operand.kind == Operand::kSpecial ? special_bits(operand.name) : 0;
  if (natural == 0) fail("'" + operand.name + "' is not known");
  if (natural == 1) fail("'" + operand.name + "' is a predicate");
  return values_.special(operand.name, nullptr, false,
                         bits == 0 ? natural : bits);
}

Ref Decoder::source(const Operand& operand, Type type) const {
  if (type == Type::kPred) return predicate(operand);
  int wanted = storage_bits(type);
  Ref ref;
  switch (operand.kind) {
    case Operand::kInteger:
    case Operand::kFloat32:
    case Operand::kFloat64:
      if (wanted == 128) fail("a literal has 64 bits at most");
      return values_.literal(literal_bits(operand, type), wanted);
    case Operand::kRegister:
      ref = values_.register_ref(operand.index);
      break;
    case Operand::kSpecial:
    case Operand::kVariable:
      ref = special(operand, false, wanted);
      break;
    case Operand::kName: {
      int index = program_.module->find_function(operand.name);
      if (index < 0)
        fail("'" + operand.name + "' is neither a variable nor a function with a body");
      return values_.literal(function_address(index), wanted);
    }
    default:
      fail("an operand is not a value");
  }
  if (operand.negated) fail("a negated operand is not supported");
  if (operand.kind == Operand::kVariable && operand.bits != 0) {
    fail("an address with an offset is not supported as a value");
  }
  if (ref.bits != wanted) {
    fail("a source has " + std::to_string(ref.bits) + " bits instead of " +
         std::to_string(wanted));
  }
  return ref;
}

Ref Decoder::predicate(const Operand& operand) const {
  if (operand.kind == Operand::kInteger) return values_.literal(operand.bits != 0, 1);
  if (operand.kind == Operand::kSpecial && special_bits(operand.name) == 1) {
    Ref ref = values_.special(operand.name, nullptr, false, 1);
    ref.negated = operand.negated;
    return ref;
  }
  if (operand.kind != Operand::kRegister) fail("an operand is not a predicate");
  Ref ref = values_.register_ref(operand.index);
  if (ref.bits != 1) fail("an operand is not a predicate");
  ref.negated = operand.negated;
  return ref;
}

void Decoder::destinations(const Operand& operand, int bits) {
  op.first = static_cast<uint32_t>(refs().size());
  if (operand.kind == Operand::kVector) {
    for (const Operand& element : operand.elements) refs().push_back(destination(element, bits));
  } else {
    refs().push_back(destination(operand, bits));
  }
  op.count = static_cast<uint32_t>(refs().size()) - op.first;
}

void Decoder::sources(const Operand& operand, Type type) {
  op.first = static_cast<uint32_t>(refs().size());
  if (operand.kind == Operand::kVector) {
    for (const Operand& element : operand.elements) refs().push_back(source(element, type));
  } else {
    refs().push_back(source(operand, type));
  }
  op.count = static_cast<uint32_t>(refs().size()) - op.first;
}

Address Decoder::address(const Operand& operand) const {
  if (operand.kind != Operand::kAddress) fail("an operand is not an address");
  const Operand& base = operand.elements[0];
  Address result;
  result.displacement = operand.bits;
  if (base.kind == Operand::kInteger) {
    result.base = values_.literal(static_cast<uint64_t>(base.bits), 64);
  } else if (base.kind == Operand::kVariable) {
    result.base = special(base, false);
    result.displacement += base.bits;  // both have 32 bits
  } else if (base.kind == Operand::kRegister) {
    result.base = values_.register_ref(base.index);
  } else {
    fail("the base of an address is not a register");
  }
  return result;
}

int64_t Decoder::integer(const Operand& operand) const {
  if (operand.kind != Operand::kInteger) fail("an operand is not an integer literal");
  return operand.bits;
}

void Decoder::fail(const std::string& reason) const {
  fault("line %d: '%s': %s", instruction_.line, instruction_.text.c_str(), reason.c_str());
}

}  // namespace warploom::emulator
