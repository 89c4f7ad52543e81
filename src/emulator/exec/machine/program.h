// An entry function, with the functions it can call, in the form that is executed: decoded once, no
// text left to interpret.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_PROGRAM_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/base/lanes.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator {

class Warp;
struct AccumulatorWatch;
struct Op;

// No number in every format of floats: registers that a program reads and never writes are
// undefined in PTX, here they are the same in every run.
constexpr uint32_t kRegisterPoison = 0x7fffffff;

// A value that an instruction reads or writes. Every value of a warp is an array: uint32_t[32] for
// types of up to 32 bits (zero-extended), uint64_t[32] for 64 bits, one uint32_t with a bit a lane
// for predicates. Registers, special registers and addresses of variables lie in the register file
// of the warp; literals are equal for all warps and lie with the program.
struct Ref {
  static constexpr int32_t kAbsent = INT32_MIN;
  int32_t offset = kAbsent;  // >= 0: byte in the register file; < 0: ~byte in the literals
  uint8_t bits = 0;          // 1 predicate, 32, 64: width of an element
  bool negated = false;      // of a predicate operand

  bool present() const { return offset != kAbsent; }
};

// An address operand.
struct Address {
  Ref base;  // 32 or 64 bits
  int64_t displacement = 0;
};

// What the scheduler does after an instruction.
enum class Step : uint8_t {
  kNext,   // go on
  kYield,  // go on later: let others run first
  kRetry,  // the fragment was parked; execute the same instruction again when it wakes
  kPark,   // the fragment was parked; go on with the next instruction when it wakes
};

enum class Flow : uint8_t {
  kStraight,  // `run` does it
  kSync,      // `run` needs all lanes of its member mask at once (*.sync, *.aligned)
  kBranch,
  kTable,     // brx.idx
  kCall,
  kReturn,
  kExit,
};

using Run = Step (*)(Warp&, const Op&, uint32_t lanes);

struct Op {
  Run run = nullptr;
  Flow flow = Flow::kStraight;
  bool guard_negated = false;
  bool synchronises = false;  // Effects::synchronises
  bool changes_state = false; // Effects::changes_state
  uint8_t flag = 0;        // free for `run`
  int32_t guard = -1;      // offset of a predicate in the register file
  Ref d;                   // destination
  Ref s[4];                // sources
  Address address;
  uint32_t first = 0;      // registers of vectors: Program::refs[first, first + count)
  uint32_t count = 0;
  const void* form = nullptr;  // parsed modifiers of `run`, owned by Program::forms
  Ref members;             // member mask of kSync; absent: all lanes of the warp (.aligned)
  int32_t target = -1;
  int32_t join = -1;       // where the lanes that a branch separates meet
  const ptx::Instruction* source = nullptr;
};

// A value of the register file that is set when a warp starts.
struct Special {
  std::string name;                         // "%tid.x", or
  const ptx::Variable* variable = nullptr;  // the address of a variable
  bool generic = false;                     // its generic address (cvta of a variable)
  Ref place;
};

// Room in the register file for the operands s[0], ..., s[3] and d of an instruction, of 1, 32 and
// 64 bits each.
struct MeetingPlace {
  static constexpr int kDestination = 4;
  std::array<std::array<Ref, 3>, 5> places{};

  Ref at(int operand, int bits) const {
    return places[static_cast<std::size_t>(operand)][bits == 1 ? 0 : bits == 32 ? 1 : 2];
  }
};

// An argument or a result of a call, on the side of the caller or of the callee: a register, or
// bytes of the thread's frame.
struct Passed {
  Ref value;                           // the register, or the address in local memory
  bool in_memory = false;
  uint32_t bytes = 0;
};

// The part of a program that is one function.
struct ProgramFunction {
  struct FrameAddress {
    Ref place;
    uint64_t offset;
    bool generic;
  };

  const ptx::Function* source = nullptr;
  int index = -1;                      // in ptx::Module::functions
  int32_t entry = 0;                   // its first instruction
  bool recursive = false;              // a call that it makes may lead to it again
  std::vector<Passed> inputs;
  std::vector<Passed> outputs;
  std::vector<Ref> values;             // its registers, and the addresses of its variables
  std::vector<FrameAddress> addresses; // those of variables in its frame

  uint64_t frame_bytes() const { return (source->local_bytes + 63) & ~uint64_t{63}; }
};

struct Program {
  const ptx::Module* module = nullptr;
  const ptx::Function* function = nullptr;
  std::vector<Op> ops;
  std::vector<Ref> refs;
  std::vector<int32_t> tables;              // of brx.idx
  std::vector<uint8_t> literals;
  std::vector<Special> specials;
  // Operands of *.sync instructions whose lanes meet from many places (exec/machine/warp_sync.cc).
  MeetingPlace meeting;
  std::vector<std::shared_ptr<const void>> forms;
  std::vector<ProgramFunction> functions;   // the entry first
  std::unordered_map<int, int> positions;   // ProgramFunction::index -> its place in `functions`
  // Registers of wgmma and tcgen05.ld (check/accumulator_watch.h); nullptr if there are none.
  std::shared_ptr<const AccumulatorWatch> accumulators;
  // The register file that a warp starts with, without the special values: what is never written
  // is kRegisterPoison, cut to the bits of its type.
  std::vector<uint8_t> file;
  uint32_t static_shared = 0;               // from SharedMemory::kReserved on
  uint32_t dynamic_alignment = 1;           // of dynamic shared memory
  bool couples_clusters = false;            // Effects of any of its instructions
  bool sums_in_any_order = false;

  // The place in `functions` of ptx::Module::functions[index]; -1 if the entry cannot reach it.
  int find_function(int index) const {
    auto found = positions.find(index);
    return found != positions.end() ? found->second : -1;
  }
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_PROGRAM_H_
