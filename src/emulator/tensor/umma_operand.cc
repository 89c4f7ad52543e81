#include "emulator/tensor/umma_operand.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "emulator/format/float_format.h"
#include "emulator/matrix/element.h"

namespace warploom::emulator {
namespace {

using CodeTable = std::array<float, 64>;

// Values of a type of at most 6 bits, none of which is infinite or NaN.
CodeTable make_codes(Type type) {
  CodeTable table{};
  for (std::size_t code = 0; code < std::size_t{1} << type_bits(type); ++code) {
    const Number number = decode(*float_format(type), code);
    const auto magnitude = std::ldexp(static_cast<float>(number.significand), number.exponent);
    table[code] = number.negative ? -magnitude : magnitude;
  }
  return table;
}

const CodeTable& codes(Type type) {
  static const CodeTable e2m1 = make_codes(Type::kE2m1);
  static const CodeTable e2m3 = make_codes(Type::kE2m3);
  static const CodeTable e3m2 = make_codes(Type::kE3m2);
  return type == Type::kE2m1 ? e2m1 : type == Type::kE2m3 ? e2m3 : e3m2;
}

bool is_narrow(Type type) { return type_bits(type) < 8; }

void widen_nibbles(const uint8_t* raw, int count, float* out) {
  const CodeTable& table = codes(Type::kE2m1);
  for (int i = 0; i < count; ++i) out[i] = table[raw[i / 2] >> (i % 2 * 4) & 15];
}

// 16 elements of 6 bits at the front of a chunk: four in three bytes.
void widen_sixes(Type type, const uint8_t* raw, float* out) {
  const CodeTable& table = codes(type);
  for (int i = 0; i < 4; ++i, raw += 3, out += 4) {
    const auto packed = static_cast<uint32_t>(raw[0] | raw[1] << 8 | raw[2] << 16);
    for (int j = 0; j < 4; ++j) out[j] = table[packed >> (6 * j) & 63];
  }
}

// `rows` rows of K, each of 32 bytes, as shared memory has them.
void widen_rows(Type type, int k, const uint8_t* raw, int rows, float* out) {
  if (!is_narrow(type)) return widen(type, raw, rows * k, out);
  if (k == 2 * kUmmaRowBytes) return widen_nibbles(raw, rows * k, out);
  for (int chunk = 0; chunk < 2 * rows; ++chunk, raw += kUmmaChunk, out += 16) {
    if (type == Type::kE2m1) {
      widen_nibbles(raw, 16, out);
    } else {
      widen_sixes(type, raw, out);
    }
  }
}

void load_k_major(const UmmaOperand& operand, int rows, const SharedMemory& memory,
                  const Placement& placement) {
  constexpr int kBlock = 8;
  const auto chunks = static_cast<uint32_t>(2 * operand.steps);
  const uint32_t row_bytes = chunks * kUmmaChunk;
  for (int first = 0; first < rows; first += kBlock) {
    uint8_t raw[kBlock * kUmmaMostSteps * kUmmaRowBytes];
    float values[kBlock * kUmmaMaxK];
    const int count = std::min(kBlock, rows - first);
    for (int row = 0; row < count; ++row) {
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        const uint32_t offset =
            umma_k_major(operand.descriptor, static_cast<uint32_t>(first + row), chunk);
        std::memcpy(raw + static_cast<uint32_t>(row) * row_bytes + chunk * kUmmaChunk,
                    memory.at(offset, kUmmaChunk), kUmmaChunk);
      }
    }
    widen_rows(operand.type, operand.k / operand.steps, raw, count * operand.steps, values);
    for (int row = 0; row < count; ++row) {
      float* out = placement.out + (first + row) * placement.row_step;
      for (int i = 0; i < operand.k; ++i) out[i * placement.k_step] = values[row * operand.k + i];
    }
  }
}

void load_mn_major(const UmmaOperand& operand, int rows, const SharedMemory& memory,
                   const Placement& placement) {
  const int elements = operand.k / operand.steps / 2;  // of a chunk: they fill whole bytes
  for (int first = 0; first < rows; first += elements) {
    const auto chunk = static_cast<uint32_t>(first / elements);
    const int count = std::min(elements, rows - first);
    for (int line = 0; line < operand.k; ++line) {
      const uint32_t offset =
          umma_mn_major(operand.descriptor, chunk, static_cast<uint32_t>(line));
      float values[kUmmaMaxK / 2];
      widen(operand.type, memory.at(offset, kUmmaChunk), count, values);
      float* out = placement.out + first * placement.row_step + line * placement.k_step;
      for (int i = 0; i < count; ++i) out[i * placement.row_step] = values[i];
    }
  }
}

}  // namespace

void check_umma_operand(const UmmaOperand& operand) {
  if (!operand.mn_major) return;
  const bool wide_atoms = operand.descriptor.atom_bytes == 32;
  if (wide_atoms == (operand.type == Type::kTf32)) return;
  fault("an MN-major operand of %s %s the swizzle of 128 bytes in atoms of 32 bytes",
        std::string(type_name(operand.type)).c_str(), wide_atoms ? "cannot have" : "needs");
}

uint32_t umma_chunk_payload(const UmmaOperand& operand) {
  return static_cast<uint32_t>(operand.k / operand.steps / 2 * type_bits(operand.type) / 8);
}

void load_shared_operand(const UmmaOperand& operand, int rows, const SharedMemory& memory,
                         const Placement& placement) {
  if (operand.mn_major) {
    load_mn_major(operand, rows, memory, placement);
  } else {
    load_k_major(operand, rows, memory, placement);
  }
}

void load_tensor_row(Type type, int k, const uint32_t* words, float* out) {
  uint8_t raw[kUmmaRowBytes];
  std::memcpy(raw, words, sizeof(raw));
  if (!is_narrow(type) || k == 2 * kUmmaRowBytes) return widen_rows(type, k, raw, 1, out);
  // Four bits lie in the middle of their byte.
  const CodeTable& table = codes(type);
  const bool four = type == Type::kE2m1;
  for (int i = 0; i < k; ++i) out[i] = table[four ? raw[i] >> 2 & 15 : raw[i] & 63];
}

}  // namespace warploom::emulator
