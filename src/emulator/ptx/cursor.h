// Reads tokens one after the other.

#ifndef WARPLOOM_EMULATOR_PTX_CURSOR_H_
#define WARPLOOM_EMULATOR_PTX_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/ptx/lexer.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

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
  std::vector<uint64_t> numbers();  // "1, 2, 3"

  // A literal with its sign, into kind and bits of an operand.
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
