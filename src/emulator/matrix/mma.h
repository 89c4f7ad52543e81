// mma.sync.aligned.m16n8kK.row.col (PTX ISA, "Warp Level Matrix Multiply-Accumulate").

#ifndef WARPLOOM_EMULATOR_MATRIX_MMA_H_
#define WARPLOOM_EMULATOR_MATRIX_MMA_H_

#include <cstdint>

#include "emulator/ptx/types.h"

namespace warploom::emulator {

struct MmaForm {
  int m;
  int n;
  int k;
  Type d;
  Type a;
  Type b;
  Type c;
  bool satfinite;
};

// A Fault that names the rule if there is no such instruction. Call it once, when loading.
void check_mma(const MmaForm& form);

// One warp; operands are registers -> [32]. d may be c. Accumulation is that of Product.
void mma_sync(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
              const uint32_t* const* b, const uint32_t* const* c);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_MMA_H_
