// Operands of tcgen05.mma, widened to floats.
//
// A row of K is 32 bytes in shared memory, two chunks of 16, and eight words in tensor memory; if A
// is sparse, a row of B is 64 bytes. Elements narrower than a byte fill them unlike others: in kinds
// that mix them with 8-bit ones, 16 of them take 16 bytes of shared memory, their bits packed at the
// front, and each takes a byte of tensor memory; kinds of 4-bit elements alone pack two in a byte
// everywhere (PTX ISA, "Packing formats of elements in Tensor and Shared memory").

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_OPERAND_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_OPERAND_H_

#include <cstdint>

#include "emulator/memory/memory.h"
#include "emulator/ptx/types.h"
#include "emulator/tensor/umma_descriptor.h"

namespace warploom::emulator {

constexpr int kUmmaRowBytes = 32;
constexpr int kUmmaRowWords = kUmmaRowBytes / 4;
constexpr int kUmmaMaxK = 64;
constexpr int kUmmaMostSteps = 2;

struct UmmaOperand {
  Type type;
  int k;
  int steps;  // of 32 bytes that a row has: two of B if A is sparse
  bool mn_major;
  UmmaDescriptor descriptor;
};

// A Fault if the major-ness does not go with the swizzle.
void check_umma_operand(const UmmaOperand& operand);

// Places of floats: element (row, k) goes to out[row * row_step + k * k_step].
struct Placement {
  float* out;
  int row_step;
  int k_step;
};

// Rows 0 to `rows` of MN, a multiple of 8, from shared memory.
void load_shared_operand(const UmmaOperand& operand, int rows, const SharedMemory& memory,
                         const Placement& placement);

// Bytes of a chunk that hold elements: what follows them is padding.
uint32_t umma_chunk_payload(const UmmaOperand& operand);

// Calls visit(offset, bytes) for everything that it reads.
template <class Visit>
void visit_shared_operand(const UmmaOperand& operand, int rows, Visit visit);

// One row of A from its eight words of tensor memory.
void load_tensor_row(Type type, int k, const uint32_t* words, float* out);

template <class Visit>
void visit_shared_operand(const UmmaOperand& operand, int rows, Visit visit) {
  const auto count = static_cast<uint32_t>(rows);
  const uint32_t bytes = umma_chunk_payload(operand);
  const auto chunks = static_cast<uint32_t>(2 * operand.steps);
  if (!operand.mn_major) {
    for (uint32_t row = 0; row < count; ++row) {
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        visit(umma_k_major(operand.descriptor, row, chunk), bytes);
      }
    }
    return;
  }
  const uint32_t elements =
      kUmmaChunk * static_cast<uint32_t>(operand.k / operand.steps) / kUmmaRowBytes;
  for (uint32_t chunk = 0; chunk * elements < count; ++chunk) {
    for (uint32_t line = 0; line < static_cast<uint32_t>(operand.k); ++line) {
      visit(umma_mn_major(operand.descriptor, chunk, line), bytes);
    }
  }
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_OPERAND_H_
