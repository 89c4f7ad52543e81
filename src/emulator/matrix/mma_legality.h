// Which instructions mma.sync has, as data (PTX ISA, "Matrix multiply-accumulate operation using
// mma instruction" and "... using mma.sp instruction with sparse matrix A").

#ifndef WARPLOOM_EMULATOR_MATRIX_MMA_LEGALITY_H_
#define WARPLOOM_EMULATOR_MATRIX_MMA_LEGALITY_H_

#include <cstdint>

#include "emulator/ptx/types.h"

namespace warploom::emulator {

enum class BitOperation : uint8_t { kNone, kXor, kAnd };

struct MmaForm {
  int m;
  int n;
  int k;
  Type d;
  Type a;
  Type b;
  Type c;
  bool satfinite;
  BitOperation bits;  // of b1, whose products are counted
  bool sparse;        // A holds half of the elements of K
  bool ordered;       // its metadata: each pair of indices ascends
  int selector;       // which lanes of each four hold the metadata
  bool a_column_major;  // of m8n8k4 of f16 only
  bool b_row_major;
};

// The oldest shape, of which a warp forms four at a time.
constexpr bool is_quarter(const MmaForm& form) {
  return form.m == 8 && form.n == 8 && form.k == 4 && form.a == Type::kF16;
}

// A Fault that names the rule if there is no such instruction. Call it once, when loading.
void check_mma(const MmaForm& form);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_MMA_LEGALITY_H_
