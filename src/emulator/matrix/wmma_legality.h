// Which instructions wmma has, as data (PTX ISA, "Matrix multiply-accumulate operation using wmma
// instructions").

#ifndef WARPLOOM_EMULATOR_MATRIX_WMMA_LEGALITY_H_
#define WARPLOOM_EMULATOR_MATRIX_WMMA_LEGALITY_H_

#include <cstdint>

#include "emulator/matrix/mma_legality.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

enum class WmmaOperand : uint8_t { kA, kB, kC };  // the result is as C

struct WmmaShape {
  int m;
  int n;
  int k;

  friend bool operator==(const WmmaShape& left, const WmmaShape& right) {
    return left.m == right.m && left.n == right.n && left.k == right.k;
  }
};

// wmma.load of an operand, or wmma.store of the result.
struct WmmaTransfer {
  WmmaOperand operand;
  WmmaShape shape;
  Type type;
  bool column_major;
};

struct WmmaForm {
  WmmaShape shape;
  Type operand;  // of A and of B
  Type d;
  Type c;
  bool satfinite;
  BitOperation bits;
  bool a_column_major;
  bool b_column_major;
};

// A Fault that names the rule if there is no such instruction. Call them once, when loading.
void check_wmma(const WmmaTransfer& transfer);
void check_wmma(const WmmaForm& form);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_WMMA_LEGALITY_H_
