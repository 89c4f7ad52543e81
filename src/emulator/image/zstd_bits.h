// What Zstandard's entropy coders read: bits forwards and backwards, and tables of both coders
// (RFC 8878, sections 4.1 and 4.2).

#ifndef WARPLOOM_EMULATOR_IMAGE_ZSTD_BITS_H_
#define WARPLOOM_EMULATOR_IMAGE_ZSTD_BITS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/fault.h"

namespace warploom::emulator::image {

[[noreturn]] inline void damaged_zstd() {
  fault("a frame of Zstandard in the fat binary is damaged");
}

// Bytes from the first to the last.
class ByteReader {
 public:
  explicit ByteReader(std::string_view text) : text_(text) {}
  bool at_end() const { return text_.empty(); }
  std::string_view rest() const { return text_; }
  std::string_view take(std::size_t count) {
    if (count > text_.size()) damaged_zstd();
    std::string_view taken = text_.substr(0, count);
    text_.remove_prefix(count);
    return taken;
  }
  // A number of up to eight bytes, the lowest first.
  uint64_t number(std::size_t bytes) {
    uint64_t value = 0;
    int shift = 0;
    for (char byte : take(bytes)) {
      value |= uint64_t{static_cast<uint8_t>(byte)} << shift;
      shift += 8;
    }
    return value;
  }

 private:
  std::string_view text_;
};

// Bits from the last to the first: the highest bit that is set in the last byte is a mark before
// them. Bits before the start are zero; `overrun` tells whether any were read.
class BackwardBits {
 public:
  explicit BackwardBits(std::string_view text);
  uint64_t read(int count);
  // The same without moving on.
  uint64_t peek(int count) const;
  void skip(int count) { left_ -= count; }
  int64_t left() const { return left_; }
  bool overrun() const { return left_ < 0; }

 private:
  std::string_view text_;
  int64_t left_ = 0;
};

// A table of a finite state entropy coder.
struct FseTable {
  struct Cell {
    uint8_t symbol;
    uint8_t bits;
    uint16_t base;
  };
  int log = 0;
  std::vector<Cell> cells;
};

// From the counts of the symbols; -1 is a count of "less than 1".
FseTable make_fse(const std::vector<int>& counts, int log);
FseTable make_fse_of_one(uint8_t symbol);
// From its description, which it takes from the reader.
FseTable read_fse(ByteReader& in, int most_log, std::size_t most_symbols);

class FseState {
 public:
  FseState(const FseTable& table, BackwardBits& bits)
      : table_(table), state_(bits.read(table.log)) {}
  uint8_t symbol() const { return table_.cells[state_].symbol; }
  void next(BackwardBits& bits) {
    const FseTable::Cell& cell = table_.cells[state_];
    state_ = cell.base + bits.read(cell.bits);
  }

 private:
  const FseTable& table_;
  uint64_t state_;
};

// A table of Huffman codes, by the next `log` bits.
struct HuffmanTable {
  struct Cell {
    uint8_t symbol;
    uint8_t bits;
  };
  int log = 0;
  std::vector<Cell> cells;
};

HuffmanTable read_huffman(ByteReader& in);
// Appends what a stream of codes says.
void decode_huffman(const HuffmanTable& table, std::string_view stream, std::size_t count,
                    std::string& out);

}  // namespace warploom::emulator::image

#endif  // WARPLOOM_EMULATOR_IMAGE_ZSTD_BITS_H_
