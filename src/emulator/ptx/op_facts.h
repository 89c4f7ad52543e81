// What the report of a launch says about an instruction, whatever it is executed with.

#ifndef WARPLOOM_EMULATOR_PTX_OP_FACTS_H_
#define WARPLOOM_EMULATOR_PTX_OP_FACTS_H_

#include <cstdint>
#include <string>

#include "emulator/ptx/module.h"

namespace warploom::emulator {

// Classes of instructions.
enum class OpClass : uint8_t {
  kInteger, kFloat, kConvert, kMove, kControl, kMemory, kAtomic, kWarp, kBarrier, kAsync, kMatrix,
  kTensorMemory, kOther,
};
constexpr int kOpClasses = 13;
const char* op_class_name(OpClass op_class);

OpClass op_class_of(const ptx::Instruction& instruction);

// How an instruction goes to memory with the addresses of its lanes.
struct LaneAccess {
  enum Kind : uint8_t {
    kNone,
    kLanes,     // each lane to its own address
    kMatrices,  // ldmatrix and stmatrix: rows of 16 bytes, eight or 16 lanes a matrix
  };
  Kind kind = kNone;
  ptx::Space space = ptx::Space::kGeneric;
  bool reads = false;
  bool writes = false;
  uint32_t bytes = 0;     // of a lane, or of a row
  uint32_t lanes = ~0u;   // whose addresses count
};
LaneAccess lane_access_of(const ptx::Instruction& instruction);

// Products of matrices, if the instruction says how large they are: multiplications and additions
// of one warp. `name` is such as "wgmma f16".
struct MatrixWork {
  std::string name;
  uint64_t flops = 0;
};
MatrixWork matrix_work_of(const ptx::Instruction& instruction);
// The name for an instruction that says how large its matrices are only when it executes:
// "tcgen05.mma f16".
std::string tensor_work_name(const ptx::Instruction& instruction);

// What is waited for: "mbarrier", "barrier", "cluster barrier", "bulk copies", "tensor memory" or
// "wgmma"; nullptr for instructions that never wait.
const char* waits_for(const ptx::Instruction& instruction);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_PTX_OP_FACTS_H_
