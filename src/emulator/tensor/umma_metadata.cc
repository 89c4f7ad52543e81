#include "emulator/tensor/umma_metadata.h"

#include <string>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

bool is_wide(Type a) { return type_bits(a) >= 16; }

// The four bits of one chunk of a row.
uint32_t nibble_of(Type a, int row, int chunk, int chunks, uint32_t column, TensorMemory& tensor) {
  if (!is_wide(a)) {
    const uint32_t word =
        *tensor.at(static_cast<uint32_t>(row), column + static_cast<uint32_t>(chunk / 8), 1);
    return word >> 4 * (chunk % 8) & 15;
  }
  const int half = chunk / (chunks / 2), lane = row / 16 * 16 + row % 8 + 8 * half;
  const uint32_t word = *tensor.at(static_cast<uint32_t>(lane), column, 1);
  return word >> (16 * (row / 8 % 2) + 4 * (chunk % 4)) & 15;
}

[[noreturn]] void refuse(Type a, int row, int chunk, uint32_t nibble, const char* rule) {
  fault("the sparsity metadata of row %d and chunk %d of %s is 0x%x; %s", row, chunk,
        std::string(type_name(a)).c_str(), nibble, rule);
}

}  // namespace

uint32_t umma_metadata_columns(Type a) { return is_wide(a) ? 1 : 2; }

void umma_held_elements(Type a, int held, int row, uint32_t column, TensorMemory& tensor,
                        uint8_t* places) {
  const int in_chunk = type_bits(a) == 32 ? 1 : 2, chunks = held / in_chunk;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const uint32_t nibble = nibble_of(a, row, chunk, chunks, column, tensor);
    const uint32_t low = nibble & 3, high = nibble >> 2;
    const auto first = static_cast<uint32_t>(2 * in_chunk * chunk);
    uint8_t* out = places + chunk * in_chunk;
    if (in_chunk == 1) {
      if (nibble != 0b0100 && nibble != 0b1110) {
        refuse(a, row, chunk, nibble, "it must be 0x4 or 0xe");
      }
      out[0] = static_cast<uint8_t>(first + low / 2);
      continue;
    }
    if (low == high) refuse(a, row, chunk, nibble, "its two indices must differ");
    out[0] = static_cast<uint8_t>(first + low);
    out[1] = static_cast<uint8_t>(first + high);
  }
}

}  // namespace warploom::emulator
