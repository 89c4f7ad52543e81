#include "emulator/image/lz4.h"

#include <cstdint>

#include "emulator/base/fault.h"

namespace warploom::emulator::image {
namespace {

[[noreturn]] void damaged() { fault("a block of LZ4 in the fat binary is damaged"); }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool at_end() const { return text_.empty(); }
  std::size_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  std::string_view take(std::size_t count) {
    if (count > text_.size()) damaged();
    std::string_view taken = text_.substr(0, count);
    text_.remove_prefix(count);
    return taken;
  }
  // A length whose first four bits are known: 15 means that further bytes follow.
  std::size_t length(std::size_t first) {
    if (first != 15) return first;
    for (std::size_t more = 255; more == 255; first += more) more = byte();
    return first;
  }

 private:
  std::string_view text_;
};

}  // namespace

std::string decompress_lz4(std::string_view block, std::size_t size) {
  constexpr std::size_t kLeastMatch = 4;
  Reader in(block);
  std::string out;
  while (!in.at_end()) {
    const std::size_t token = in.byte();
    const std::string_view literals = in.take(in.length(token >> 4));
    if (literals.size() > size - out.size()) damaged();
    out += literals;
    if (in.at_end()) break;  // the last sequence has no match
    std::size_t offset = in.byte();
    offset |= in.byte() << 8;
    const std::size_t match = in.length(token & 15) + kLeastMatch;
    if (offset == 0 || offset > out.size() || match > size - out.size()) damaged();
    // A match may overlap what it makes.
    for (std::size_t i = 0; i < match; ++i) out += out[out.size() - offset];
  }
  if (out.size() != size) damaged();
  return out;
}

}  // namespace warploom::emulator::image
