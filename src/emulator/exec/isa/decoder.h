// What the decoding functions of the instruction families share.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_DECODER_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

// The modifiers of an instruction, each to be taken once. Those that are left over are unknown.
class Modifiers {
 public:
  explicit Modifiers(const ptx::Instruction& instruction);

  bool take(std::string_view name);
  // Position of the one that is there, -1 if none is.
  int take_one(std::initializer_list<std::string_view> names);
  // Those that change nothing here, such as scopes of memory ordering.
  void take_all(std::initializer_list<std::string_view> names);
  // The first modifier left that names a type; kNone if there is none.
  Type take_type();
  // The first modifier left, whatever it is; empty if there is none.
  std::string take_first();
  // A Fault if any is left.
  void finish() const;

 private:
  const ptx::Instruction& instruction_;
  std::vector<std::string> left_;
};

// Registers, literals and special values of the program that is being made.
class Values {
 public:
  explicit Values(Program& program) : program_(program) {}

  // Registers are from now on those of this function.
  void enter(ProgramFunction& function);

  Ref register_ref(int index);
  Ref literal(uint64_t bits, int width);  // width 1: predicate, all lanes
  Ref special(const std::string& name, const ptx::Variable* variable, bool generic,
              int width);
  // Where the results go that a program throws away.
  Ref sink(int width);
  // The carry flags of the threads, a predicate.
  Ref carry();
  Passed formal(const ptx::Formal& formal);
  MeetingPlace meeting_place();

 private:
  Ref allocate(int width, uint32_t poison = kRegisterPoison);

  Program& program_;
  ProgramFunction* function_ = nullptr;
  std::vector<Ref> registers_;
  std::map<std::pair<uint64_t, int>, Ref> literals_;
  std::map<std::pair<std::string, int>, Ref> specials_;
  Ref carry_;
  std::map<int, Ref> sinks_;
};

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

// The type that an instruction computes in.
Type last_type(const ptx::Instruction& instruction);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_DECODER_H_
