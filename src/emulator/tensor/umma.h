// tcgen05.mma (PTX ISA, "TensorCore 5th Generation Matrix Multiply and accumulate Operations").

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_H_

#include "emulator/memory/memory.h"
#include "emulator/tensor/tensor_memory.h"
#include "emulator/tensor/umma_plan.h"

namespace warploom::emulator {

// One of the CTAs that compute together.
struct UmmaCta {
  const SharedMemory* shared;
  TensorMemory* tensor;
};

// Executes it at once; `ctas` has as many as the form says, that of even rank first. A CTA of a
// pair has half the rows of A and D and half the columns of B.
//
// Sums are those of RowProduct. An f16 accumulator is widened, and rounded to nearest at the end of
// the instruction. With block scaling, the sum of each block starts from zero and is scaled and
// added as ScaledRow does it. Integers are exact.
void umma(const UmmaPlan& plan, const UmmaCta* ctas);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_H_
