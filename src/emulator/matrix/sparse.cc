#include "emulator/matrix/sparse.h"

#include <cmath>
#include <string>

#include "emulator/base/fault.h"
#include "emulator/format/float16.h"
#include "emulator/matrix/element.h"
#include "emulator/matrix/exact_sum.h"

namespace warploom::emulator {
namespace {

// The four bits of metadata for one chunk of a row. A chunk is 64 bits of a row of K for elements
// of 16 and 32 bits, and 32 bits for narrower ones; each of four lanes has the indices of two rows,
// or of one.
uint32_t nibble_of(Type a, int selector, const uint32_t* metadata, int row, int chunk, int chunks) {
  const int half = row / 8, lane = 4 * (row % 8);
  if (element_bits(a) >= 16) {
    const int lanes = chunks / 4;
    return metadata[lane + selector * lanes + chunk / 4] >> (16 * half + 4 * (chunk % 4)) & 15;
  }
  return metadata[lane + 2 * selector + 2 * (chunk / 8) + half] >> 4 * (chunk % 8) & 15;
}

[[noreturn]] void refuse(Type a, int row, int chunk, uint32_t nibble, const char* rule) {
  fault("the sparsity metadata of row %d and chunk %d of %s is 0x%x; %s", row, chunk,
        std::string(type_name(a)).c_str(), nibble, rule);
}

// The sum of those held elements that `has` names by their place in the row.
template <class Has>
uint32_t sum_of(const SparseProduct& product, int row, int column, uint32_t start, Has has) {
  const float* a = product.a + row * product.held;
  const float* b = product.b + column * product.k;
  const uint8_t* k = product.indices->k[row];
  ExactSum sum(product.rule);
  for (int i = 0; i < product.held; ++i) {
    if (has(i)) sum.find(a[i], b[k[i]]);
  }
  sum.find(bits_float(start));
  for (int i = 0; i < product.held; ++i) {
    if (has(i)) sum.add(static_cast<double>(a[i]) * b[k[i]]);
  }
  sum.add(bits_float(start));
  return sum.result();
}

}  // namespace

SparseIndices sparse_indices(Type a, int k, int selector, bool ordered, const uint32_t* metadata) {
  SparseIndices result;
  const int bits = element_bits(a), held = k / 2;
  // Elements that one chunk holds, of which each index names one or two.
  const int in_chunk = bits == 32 ? 1 : bits == 4 ? 4 : 2;
  const int chunks = held / in_chunk;
  for (int row = 0; row < 16; ++row) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t nibble = nibble_of(a, selector, metadata, row, chunk, chunks);
      const uint32_t low = nibble & 3, high = nibble >> 2;
      uint8_t* out = result.k[row] + chunk * in_chunk;
      if (bits == 32) {
        if (nibble != 0b0100 && nibble != 0b1110) {
          refuse(a, row, chunk, nibble, "it must be 0x4 or 0xe");
        }
        out[0] = static_cast<uint8_t>(2u * static_cast<uint32_t>(chunk) + low / 2);
        continue;
      }
      if (low == high) refuse(a, row, chunk, nibble, "its two indices must differ");
      if (ordered && low > high) refuse(a, row, chunk, nibble, "its indices must ascend");
      const uint32_t unit = static_cast<uint32_t>(in_chunk) / 2;
      for (uint32_t i = 0; i < unit; ++i) {
        const uint32_t first = 4 * unit * static_cast<uint32_t>(chunk) + i;
        out[i] = static_cast<uint8_t>(first + low * unit);
        out[unit + i] = static_cast<uint8_t>(first + high * unit);
      }
    }
  }
  return result;
}

uint32_t sparse_sum(const SparseProduct& product, int row, int column, uint32_t start) {
  if (product.rule.kept != 0) {
    return sum_of(product, row, column, start, [](int) { return true; });
  }
  const float* a = product.a + row * product.held;
  const float* b = product.b + column * product.k;
  float sum = bits_float(start);
  for (int i = 0; i < product.held; ++i) sum += a[i] * b[product.indices->k[row][i]];
  return float_bits(sum);
}

uint32_t sparse_sum_of_halves(const SparseProduct& product, int row, int column, uint32_t start) {
  uint32_t sum = 0;
  for (int part : {0, 1}) {
    sum = sum_of(product, row, column, sum, [part](int i) { return i / 2 % 2 == part; });
  }
  const float total = bits_float(start) + bits_float(sum);
  return std::isnan(total) ? 0x7fffffffu : float_bits(total);
}

}  // namespace warploom::emulator
