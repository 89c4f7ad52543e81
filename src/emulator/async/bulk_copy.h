// Reductions of bulk copies: cp.reduce.async.bulk and its tensor form (PTX ISA).

#ifndef WARPLOOM_EMULATOR_ASYNC_BULK_COPY_H_
#define WARPLOOM_EMULATOR_ASYNC_BULK_COPY_H_

#include <cstdint>

#include "emulator/ptx/types.h"

namespace warploom::emulator {

enum class Reduction : uint8_t { kNone, kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };

// A Fault if there is no such reduction of this type. Call it when loading.
void check_reduction(Type type, Reduction reduction);

// destination = destination op source for every element of `bytes`; kNone copies. Sums of f16 and
// bf16 are rounded to nearest; those of f32 keep subnormal numbers. min and max prefer a number to
// NaN.
void bulk_reduce(Type type, Reduction reduction, uint8_t* destination, const uint8_t* source,
                 uint32_t bytes);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_BULK_COPY_H_
