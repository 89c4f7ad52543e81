// What the decoding functions of the instruction families share.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_DECODER_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/exec/isa/modifiers.h"
#include "emulator/exec/isa/values.h"
#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

class Decoder {
 public:
  Decoder(Program& program, Values& values, const ProgramFunction& function,
          const ptx::Instruction& instruction, Op& op);

  Modifiers modifiers;
  Op& op;

  const ptx::Instruction& instruction() const { return instruction_; }
  const Program& program() const { return program_; }
  const ptx::Function& function() const { return *function_.source; }
  std::size_t count() const { return instruction_.operands.size(); }
  const ptx::Operand& operand(std::size_t index) const;  // a Fault if it is missing
  void expect_count(std::size_t least, std::size_t most) const;

  // A register to write; `bits` 0 takes any width. "_" gives a register that nobody reads, or an
  // absent Ref if any width would do.
  Ref destination(const ptx::Operand& operand, int bits) const;
  // The predicate q of a destination "d|q"; absent if there is none.
  Ref second_destination(const ptx::Operand& operand) const;
  // A register, literal, special register or address to read.
  Ref source(const ptx::Operand& operand, Type type) const;
  Ref predicate(const ptx::Operand& operand) const;
  // The elements of a vector, or the one operand itself, into refs[op.first, op.first + op.count).
  void destinations(const ptx::Operand& operand, int bits);
  void sources(const ptx::Operand& operand, Type type);
  Address address(const ptx::Operand& operand) const;
  int64_t integer(const ptx::Operand& operand) const;  // a literal
  Ref carry() const { return values_.carry(); }
  // A special register, or the address of a variable; `bits` 0 is the natural width.
  Ref special(const ptx::Operand& operand, bool generic, int bits = 0) const;

  template <class Form>
  const Form& form(Form value) {
    auto owned = std::make_shared<Form>(std::move(value));
    op.form = owned.get();
    program_.forms.push_back(owned);
    return *owned;
  }

  std::vector<Ref>& refs() { return program_.refs; }
  std::vector<int32_t>& tables() { return program_.tables; }

  // Fault: "line 12: 'ld.x.b32': <reason>".
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  Program& program_;
  Values& values_;
  const ProgramFunction& function_;
  const ptx::Instruction& instruction_;
};

using DecodeFunction = void (*)(Decoder&);
// By opcode; "add:f" is add of f32 and f64, "add:h" of 16-bit floats, also packed, "add:mixed" of
// f32 and such, "add:f32x2" and "mov:b128" of these types; "st.async" is st with async as its first
// modifier, "add.cc" add and "cvt.ue8m0x2" cvt with that modifier anywhere.
using DecodeTable = std::unordered_map<std::string, DecodeFunction>;

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_DECODER_H_
