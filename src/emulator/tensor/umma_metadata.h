// The metadata of a sparse A of tcgen05.mma.sp in tensor memory, for 128 rows of a CTA.
//
// A row has four bits for each two elements that A holds (tf32: for each element), as for mma.sp.
// Of 8-bit elements and narrower ones, a lane has the metadata of its row: two columns. Of wider
// ones an instruction reads one column: groups of 16 rows lie in 16 lanes, of which the first eight
// have the first half of K and the others the second half; bits 0-15 are those of row r of a group,
// bits 16-31 those of row r + 8. The layouts are those of CUTLASS (cute::UMMA::tmem_e_frg).

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_METADATA_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_METADATA_H_

#include <cstdint>

#include "emulator/ptx/types.h"
#include "emulator/tensor/tensor_memory.h"

namespace warploom::emulator {

// Columns that one instruction reads.
uint32_t umma_metadata_columns(Type a);

// The places in K of the `held` elements that A holds of a row. A Fault if metadata names none.
void umma_held_elements(Type a, int held, int row, uint32_t column, TensorMemory& tensor,
                        uint8_t* places);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_METADATA_H_
