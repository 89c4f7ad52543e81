// Reads tokens one after the other.

#ifndef WARPLOOM_EMULATOR_PTX_CURSOR_H_
#define WARPLOOM_EMULATOR_PTX_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/ptx/lexer.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

// The text of a token for a message: a long one is cut.
std::string shown(std::string_view text);

class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[position_ + ahead < tokens_.size() ? position_ + ahead : tokens_.size() - 1];
  }
  const Token& next();  // a Fault at the end
  int line() const { return peek().line; }

  bool accept(char c);
  void expect(char c);
  std::string_view word();
  uint64_t unsigned_number();
  // A Fault unless it is within `least` and `most`: "line 7: the alignment is 3; ...".
  uint64_t number_within(const char* what, uint64_t least, uint64_t most);
  std::vector<uint64_t> numbers(std::size_t most);  // "1, 2, 3", at most so many

  // A literal with its sign, into kind and bits of an operand. A Fault if it does not fit into 64
  // bits.
  Operand literal();

  void skip_line();         // the rest of the line of the next token
  void skip_braces();       // from "{" to its "}"
  void skip_parentheses();  // from "(" to its ")"

  // Fault: "line 7: expected a directive, found 'x'".
  [[noreturn]] void fail(const char* expected) const;

 private:
  void skip_nested(char open, char close);

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
};

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_CURSOR_H_
