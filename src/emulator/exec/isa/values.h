// Where the values of a program lie: places in the register file and among the literals.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_VALUES_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_VALUES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "emulator/exec/machine/program.h"
#include "emulator/ptx/module.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

// Bits of the place of a value: 1 of a predicate, 32 of narrow types.
int storage_bits(Type type);

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

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_VALUES_H_
