#include "emulator/image/zstd_bits.h"

#include <algorithm>

namespace warploom::emulator::image {
namespace {

constexpr int kMostHuffmanBits = 11;

int highest_bit(uint64_t value) {  // of a value that is not 0
  int bit = 0;
  while (value >>= 1) ++bit;
  return bit;
}

// Bits from the first byte on, the lowest bit first.
class ForwardBits {
 public:
  explicit ForwardBits(std::string_view text) : text_(text) {}
  uint32_t peek(int count) const {
    uint32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t bit = at_ + static_cast<std::size_t>(i);
      if (bit / 8 < text_.size()) {
        value |= uint32_t{static_cast<uint8_t>(text_[bit / 8]) >> (bit % 8) & 1u} << i;
      }
    }
    return value;
  }
  uint32_t read(int count) {
    const uint32_t value = peek(count);
    at_ += static_cast<std::size_t>(count);
    return value;
  }
  std::size_t bytes() const { return (at_ + 7) / 8; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

// The weights of the symbols of a Huffman code, but for the last one.
std::vector<uint8_t> read_weights(ByteReader& in) {
  const std::size_t head = in.number(1);
  std::vector<uint8_t> weights;
  if (head >= 128) {
    const std::size_t count = head - 127;
    for (char pair : in.take((count + 1) / 2)) {
      weights.push_back(static_cast<uint8_t>(pair) >> 4);
      weights.push_back(static_cast<uint8_t>(pair) & 15);
    }
    weights.resize(count);
    return weights;
  }
  ByteReader part(in.take(head));
  const FseTable table = read_fse(part, 6, 256);
  BackwardBits bits(part.rest());
  // Two states take turns until the bits are used up.
  FseState one(table, bits), two(table, bits);
  FseState* turn = &one;
  FseState* other = &two;
  while (weights.size() < 255) {
    weights.push_back(turn->symbol());
    turn->next(bits);
    if (bits.overrun()) {
      weights.push_back(other->symbol());
      return weights;
    }
    std::swap(turn, other);
  }
  damaged_zstd();
}

}  // namespace

BackwardBits::BackwardBits(std::string_view text) : text_(text) {
  if (text.empty() || text.back() == 0) damaged_zstd();
  left_ = static_cast<int64_t>(8 * (text.size() - 1)) +
          highest_bit(static_cast<uint8_t>(text.back()));
}

uint64_t BackwardBits::peek(int count) const {
  uint64_t value = 0;
  for (int64_t bit = left_ - 1; bit >= left_ - count; --bit) {
    value <<= 1;
    if (bit >= 0) {
      value |= static_cast<uint8_t>(text_[static_cast<std::size_t>(bit / 8)]) >> (bit % 8) & 1;
    }
  }
  return value;
}

uint64_t BackwardBits::read(int count) {
  const uint64_t value = peek(count);
  left_ -= count;
  return value;
}

FseTable make_fse(const std::vector<int>& counts, int log) {
  const std::size_t size = std::size_t{1} << log;
  FseTable table{log, std::vector<FseTable::Cell>(size)};
  std::vector<uint32_t> next(counts.size());
  std::size_t high = size;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    next[s] = counts[s] < 0 ? 1 : static_cast<uint32_t>(counts[s]);
    if (counts[s] < 0) table.cells[--high].symbol = static_cast<uint8_t>(s);
  }
  const std::size_t step = (size >> 1) + (size >> 3) + 3, mask = size - 1;
  std::size_t place = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    for (int i = 0; i < counts[s]; ++i) {
      table.cells[place].symbol = static_cast<uint8_t>(s);
      do place = (place + step) & mask;
      while (place >= high);
    }
  }
  for (FseTable::Cell& cell : table.cells) {
    const uint32_t state = next[cell.symbol]++;
    cell.bits = static_cast<uint8_t>(log - highest_bit(state));
    cell.base = static_cast<uint16_t>((state << cell.bits) - size);
  }
  return table;
}

FseTable make_fse_of_one(uint8_t symbol) { return {0, {{symbol, 0, 0}}}; }

FseTable read_fse(ByteReader& in, int most_log, std::size_t most_symbols) {
  ForwardBits bits(in.rest());
  const int log = static_cast<int>(bits.read(4)) + 5;
  if (log > most_log) damaged_zstd();
  int left = (1 << log) + 1;
  std::vector<int> counts;
  while (left > 1) {
    if (counts.size() >= most_symbols) damaged_zstd();
    // Numbers up to `left`; small ones take one bit less.
    const int width = highest_bit(static_cast<uint64_t>(left)) + 1;
    const uint32_t short_ones = (1u << width) - 1 - static_cast<uint32_t>(left);
    const uint32_t half = 1u << (width - 1);
    uint32_t value = bits.peek(width - 1);
    if (value < short_ones) {
      bits.read(width - 1);
    } else {
      value = bits.read(width);
      if (value >= half) value -= short_ones;
    }
    const int count = static_cast<int>(value) - 1;
    counts.push_back(count);
    left -= count < 0 ? 1 : count;
    if (left < 1) damaged_zstd();
    if (count != 0) continue;
    for (uint32_t zeros = 3; zeros == 3;) {
      zeros = bits.read(2);
      counts.insert(counts.end(), zeros, 0);
      if (counts.size() > most_symbols) damaged_zstd();
    }
  }
  in.take(bits.bytes());
  return make_fse(counts, log);
}

HuffmanTable read_huffman(ByteReader& in) {
  std::vector<uint8_t> weights = read_weights(in);
  uint64_t sum = 0;
  for (uint8_t weight : weights) {
    if (weight > kMostHuffmanBits) damaged_zstd();
    if (weight != 0) sum += uint64_t{1} << (weight - 1);
  }
  if (sum == 0) damaged_zstd();
  const int log = highest_bit(sum) + 1;
  const uint64_t rest = (uint64_t{1} << log) - sum;
  if (log > kMostHuffmanBits || (rest & (rest - 1)) != 0 || weights.size() > 255) damaged_zstd();
  weights.push_back(static_cast<uint8_t>(highest_bit(rest) + 1));
  // Codes of the lowest weight, which are the longest, come first; then by symbol.
  HuffmanTable table{log, {}};
  for (int weight = 1; weight <= log; ++weight) {
    for (std::size_t s = 0; s < weights.size(); ++s) {
      if (weights[s] != weight) continue;
      table.cells.insert(table.cells.end(), std::size_t{1} << (weight - 1),
                         {static_cast<uint8_t>(s), static_cast<uint8_t>(log + 1 - weight)});
    }
  }
  if (table.cells.size() != std::size_t{1} << log) damaged_zstd();
  return table;
}

void decode_huffman(const HuffmanTable& table, std::string_view stream, std::size_t count,
                    std::string& out) {
  BackwardBits bits(stream);
  for (std::size_t i = 0; i < count; ++i) {
    const HuffmanTable::Cell& cell = table.cells[bits.peek(table.log)];
    bits.skip(cell.bits);
    if (bits.overrun()) damaged_zstd();
    out += static_cast<char>(cell.symbol);
  }
  if (bits.left() != 0) damaged_zstd();
}

}  // namespace warploom::emulator::image
