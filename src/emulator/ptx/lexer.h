// Splits PTX into tokens.

#ifndef WARPLOOM_EMULATOR_PTX_LEXER_H_
#define WARPLOOM_EMULATOR_PTX_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace warploom::emulator::ptx {

struct Token {
  enum Kind : uint8_t {
    kWord,    // identifier, one directive, opcode with all its modifiers: "ld.shared::cta.b32"
    kNumber,  // "12", "0x1f", "0f3F800000", "1.5e3"
    kString,  // without quotes
    kPunct,   // one character
    kEnd,
  };
  Kind kind = kEnd;
  std::string_view text;  // points into the source
  int line = 0;           // from 1

  bool is(char c) const { return kind == kPunct && text[0] == c; }
  bool is(std::string_view word) const { return kind == kWord && text == word; }
};

// The tokens of `source`, the last of kind kEnd. Throws Fault on a character that PTX lacks.
std::vector<Token> tokenize(std::string_view source);

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_LEXER_H_
