#include "emulator/matrix/instruction_set.h"

#include <cstdlib>
#include <cstring>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

constexpr InstructionSet kSets[] = {InstructionSet::kAny, InstructionSet::kAvx2,
                                    InstructionSet::kAvx512};

bool processor_has(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAny:
      return true;
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f");
#endif
    default:
      return false;
  }
}

InstructionSet widest_allowed() {
  const char* text = std::getenv("WARPLOOM_EMULATOR_ISA");
  if (text == nullptr) return InstructionSet::kAvx512;
  for (InstructionSet set : kSets) {
    if (std::strcmp(text, instruction_set_name(set)) == 0) return set;
  }
  fault("WARPLOOM_EMULATOR_ISA is '%s'; allowed are any, avx2 and avx512", text);
}

}  // namespace

const char* instruction_set_name(InstructionSet set) {
  constexpr const char* kNames[] = {"any", "avx2", "avx512"};
  return kNames[static_cast<int>(set)];
}

bool may_use(InstructionSet set) { return set <= widest_allowed() && processor_has(set); }

}  // namespace warploom::emulator
