#include "emulator/image/zstd.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "emulator/image/zstd_bits.h"

namespace warploom::emulator::image {
namespace {

constexpr uint64_t kMagic = 0xfd2fb528;
constexpr uint64_t kSkippable = 0x184d2a50;  // with any last four bits
constexpr std::size_t kMostBlock = 128 << 10;

// A length by its code: a number, and bits that are added to it.
struct Length {
  uint32_t base;
  uint8_t bits;
};

constexpr Length kLiterals[] = {
    {0, 0},    {1, 0},    {2, 0},    {3, 0},     {4, 0},     {5, 0},     {6, 0},      {7, 0},
    {8, 0},    {9, 0},    {10, 0},   {11, 0},    {12, 0},    {13, 0},    {14, 0},     {15, 0},
    {16, 1},   {18, 1},   {20, 1},   {22, 1},    {24, 2},    {28, 2},    {32, 3},     {40, 3},
    {48, 4},   {64, 6},   {128, 7},  {256, 8},   {512, 9},   {1024, 10}, {2048, 11},  {4096, 12},
    {8192, 13}, {16384, 14}, {32768, 15}, {65536, 16}};
constexpr Length kMatches[] = {
    {3, 0},   {4, 0},   {5, 0},   {6, 0},   {7, 0},   {8, 0},   {9, 0},    {10, 0},    {11, 0},
    {12, 0},  {13, 0},  {14, 0},  {15, 0},  {16, 0},  {17, 0},  {18, 0},   {19, 0},    {20, 0},
    {21, 0},  {22, 0},  {23, 0},  {24, 0},  {25, 0},  {26, 0},  {27, 0},   {28, 0},    {29, 0},
    {30, 0},  {31, 0},  {32, 0},  {33, 0},  {34, 0},  {35, 1},  {37, 1},   {39, 1},    {41, 1},
    {43, 2},  {47, 2},  {51, 3},  {59, 3},  {67, 4},  {83, 4},  {99, 5},   {131, 7},   {259, 8},
    {515, 9}, {1027, 10}, {2051, 11}, {4099, 12}, {8195, 13}, {16387, 14}, {32771, 15}, {65539, 16}};

// One of the three codes of sequences: its table lives from block to block.
struct Code {
  int default_log;
  std::vector<int> default_counts;
  int most_log;
  std::size_t symbols;
  std::optional<FseTable> table{};
};

class Decoder {
 public:
  Decoder(std::string_view frame, std::size_t most) : in_(frame), most_(most) {}

  std::string decode() {
    while (!in_.at_end()) frame();
    return std::move(out_);
  }

 private:
  void frame() {
    const uint64_t magic = in_.number(4);
    if ((magic & ~uint64_t{15}) == kSkippable) {
      in_.take(in_.number(4));
      return;
    }
    if (magic != kMagic) damaged_zstd();
    const uint64_t head = in_.number(1);
    const bool single = (head >> 5 & 1) != 0, checksum = (head >> 2 & 1) != 0;
    if (!single) in_.take(1);  // the window: whatever was decoded is at hand
    constexpr std::size_t kIdBytes[] = {0, 1, 2, 4}, kSizeBytes[] = {0, 2, 4, 8};
    if (in_.number(kIdBytes[head & 3]) != 0) fault("a frame of Zstandard uses a dictionary");
    in_.take(head >> 6 == 0 ? (single ? 1 : 0) : kSizeBytes[head >> 6]);
    begin_ = out_.size();
    repeated_ = {1, 4, 8};
    huffman_.reset();
    for (Code* code : {&literal_code_, &offset_code_, &match_code_}) code->table.reset();
    for (bool last = false; !last;) {
      const uint64_t block = in_.number(3);
      last = (block & 1) != 0;
      const std::size_t size = block >> 3;
      if (size > kMostBlock) damaged_zstd();
      switch (block >> 1 & 3) {
        case 0: append(in_.take(size)); break;
        case 1: append(std::string(size, in_.take(1)[0])); break;
        case 2: compressed(ByteReader(in_.take(size))); break;
        default: damaged_zstd();
      }
    }
    if (checksum) in_.take(4);
  }

  void append(std::string_view text) {
    if (text.size() > most_ - out_.size()) damaged_zstd();
    out_ += text;
  }

  void compressed(ByteReader in) {
    const std::string literals = read_literals(in);
    std::size_t used = 0;
    sequences(in, literals, used);
    append(std::string_view(literals).substr(used));
  }

  std::string read_literals(ByteReader& in) {
    const uint64_t head = static_cast<uint8_t>(in.rest().empty() ? 0 : in.rest()[0]);
    const int type = static_cast<int>(head & 3), form = static_cast<int>(head >> 2 & 3);
    if (type < 2) {
      const std::size_t bytes = form == 1 ? 2 : form == 3 ? 3 : 1;
      const std::size_t size = in.number(bytes) >> (bytes == 1 ? 3 : 4);
      if (size > kMostBlock) damaged_zstd();
      return type == 0 ? std::string(in.take(size)) : std::string(size, in.take(1)[0]);
    }
    const std::size_t bytes = form < 2 ? 3 : form == 2 ? 4 : 5;
    const int width = form < 2 ? 10 : form == 2 ? 14 : 18;
    const uint64_t sizes = in.number(bytes) >> 4;
    const std::size_t size = sizes & ((1u << width) - 1);
    const std::size_t packed = sizes >> width & ((1u << width) - 1);
    if (size > kMostBlock) damaged_zstd();
    ByteReader part(in.take(packed));
    if (type == 2) huffman_ = read_huffman(part);
    if (!huffman_) damaged_zstd();
    std::string literals;
    if (form == 0) {
      decode_huffman(*huffman_, part.rest(), size, literals);
      return literals;
    }
    const std::size_t a = part.number(2), b = part.number(2), c = part.number(2);
    const std::size_t quarter = (size + 3) / 4;
    if (3 * quarter > size) damaged_zstd();
    for (std::size_t stream : {a, b, c}) {
      decode_huffman(*huffman_, part.take(stream), quarter, literals);
    }
    decode_huffman(*huffman_, part.rest(), size - 3 * quarter, literals);
    return literals;
  }

  void read_table(ByteReader& in, Code& code, uint64_t mode) {
    switch (mode) {
      case 0: code.table = make_fse(code.default_counts, code.default_log); break;
      case 1: code.table = make_fse_of_one(static_cast<uint8_t>(in.number(1))); break;
      case 2: code.table = read_fse(in, code.most_log, code.symbols); break;
      default:
        if (!code.table) damaged_zstd();
    }
  }

  void sequences(ByteReader& in, const std::string& literals, std::size_t& used) {
    std::size_t count = in.number(1);
    if (count == 0) return;
    if (count == 255) {
      count = in.number(2) + 0x7f00;
    } else if (count >= 128) {
      count = ((count - 128) << 8) + in.number(1);
    }
    const uint64_t modes = in.number(1);
    read_table(in, literal_code_, modes >> 6 & 3);
    read_table(in, offset_code_, modes >> 4 & 3);
    read_table(in, match_code_, modes >> 2 & 3);
    BackwardBits bits(in.rest());
    FseState literal(*literal_code_.table, bits), offset(*offset_code_.table, bits),
        match(*match_code_.table, bits);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t l = literal.symbol(), m = match.symbol(), o = offset.symbol();
      if (l >= std::size(kLiterals) || m >= std::size(kMatches) || o > 31) damaged_zstd();
      const uint64_t distance = (uint64_t{1} << o) + bits.read(static_cast<int>(o));
      const std::size_t copied = kMatches[m].base + bits.read(kMatches[m].bits);
      const std::size_t own = kLiterals[l].base + bits.read(kLiterals[l].bits);
      if (own > literals.size() - used) damaged_zstd();
      append(std::string_view(literals).substr(used, own));
      used += own;
      copy(place_of(distance, own), copied);
      if (i + 1 == count) break;
      literal.next(bits);
      match.next(bits);
      offset.next(bits);
      if (bits.overrun()) damaged_zstd();
    }
    if (bits.left() != 0) damaged_zstd();
  }

  // How far back a match lies: values 1 to 3 mean offsets that were used before.
  uint64_t place_of(uint64_t value, std::size_t literals) {
    if (value > 3) {
      repeated_ = {value - 3, repeated_[0], repeated_[1]};
      return repeated_[0];
    }
    const std::size_t index = value - (literals != 0 ? 1 : 0);
    if (index == 0) return repeated_[0];
    const uint64_t chosen = index == 3 ? repeated_[0] - 1 : repeated_[index];
    if (index > 1) repeated_[2] = repeated_[1];
    repeated_[1] = repeated_[0];
    return repeated_[0] = chosen;
  }

  void copy(uint64_t back, std::size_t count) {
    if (back == 0 || back > out_.size() - begin_ || count > most_ - out_.size()) damaged_zstd();
    for (std::size_t i = 0; i < count; ++i) out_ += out_[out_.size() - back];
  }

  ByteReader in_;
  std::size_t most_;
  std::string out_;
  std::size_t begin_ = 0;  // of what the frame has made
  std::array<uint64_t, 3> repeated_{1, 4, 8};
  std::optional<HuffmanTable> huffman_;
  Code literal_code_{6,
                     {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2,
                      2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1},
                     9,
                     36};
  Code offset_code_{5,
                    {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1,
                     1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1},
                    8,
                    32};
  Code match_code_{6,
                   {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1,  1,  1,
                    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,
                    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1},
                   9,
                   53};
};

}  // namespace

std::string decompress_zstd(std::string_view frame, std::size_t most) {
  return Decoder(frame, most).decode();
}

}  // namespace warploom::emulator::image
