// mma.sync.aligned on the registers of a warp (PTX ISA, "Warp Level Matrix
// Multiply-Accumulate Instructions").

#ifndef WARPLOOM_EMULATOR_MATRIX_MMA_H_
#define WARPLOOM_EMULATOR_MATRIX_MMA_H_

#include <cstdint>

#include "emulator/matrix/mma_legality.h"

namespace warploom::emulator {

// One warp; operands are registers -> [32]. d may be c. Accumulation is that of Product; a sparse A
// comes with a register of metadata.
void mma_sync(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
              const uint32_t* const* b, const uint32_t* const* c, const uint32_t* metadata);

// Four products of f16 with shape m8n8k4: a chain of fused multiply-adds that starts from zero, to
// which c is added.
void mma_sync_quarters(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
                       const uint32_t* const* b, const uint32_t* const* c);

// Of f64, each sum a chain of fused multiply-adds in the order of k.
void mma_sync_double(const MmaForm& form, uint64_t* const* d, const uint64_t* const* a,
                     const uint64_t* const* b, const uint64_t* const* c);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_MMA_H_
