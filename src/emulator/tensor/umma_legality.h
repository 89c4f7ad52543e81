// Which forms, types and shapes tcgen05.mma has, as data (PTX ISA, "tcgen05", tables "Various
// combinations of .kind and shapes", "Transpose and Negate operation for various MMA-Kind" and
// "Valid combinations of scale_vectorsize with types and MMA-Kind").

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_LEGALITY_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_LEGALITY_H_

#include <array>
#include <cstdint>

#include "emulator/ptx/types.h"

namespace warploom::emulator {

enum class UmmaKind : uint8_t { kF16, kTf32, kF8f6f4, kI8, kMxf8f6f4, kMxf4, kMxf4nvf4 };

struct UmmaKindFacts {
  const char* name;  // as in .kind::NAME
  int k;             // elements that one instruction consumes
  // By their codes in the instruction descriptor; kNone where there is no such code.
  std::array<Type, 8> operands;
  std::array<Type, 4> accumulators;
  bool transposes;  // MN-major operands, of elements that fill whole bytes
  bool negates;
  bool scales_input;  // scale-input-d
  bool weight_stationary;
  bool block_scaled;
};

const UmmaKindFacts& umma_kind_facts(UmmaKind kind);

// Formats of scale factors that a kind has with `vectors` of them for each row of A.
struct UmmaScaleRule {
  UmmaKind kind;
  int vectors;  // .scale_vec::NX
  bool ue8m0;
  bool ue4m3;
};

// nullptr if the kind has no such number of vectors.
const UmmaScaleRule* umma_scale_rule(UmmaKind kind, int vectors);

// A Fault that names what is allowed if there is no such shape.
void check_umma_shape(UmmaKind kind, int cta_group, bool weight_stationary, int m, int n);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_LEGALITY_H_
