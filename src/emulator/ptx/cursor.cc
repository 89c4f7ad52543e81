#include "emulator/ptx/cursor.h"

#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <string>

#include "emulator/base/fault.h"
#include "emulator/ptx/limits.h"

namespace warploom::emulator::ptx {

std::string shown(std::string_view text) {
  if (text.size() <= kMostShownCharacters) return std::string(text);
  return std::string(text.substr(0, kMostShownCharacters)) + "...";
}

const Token& Cursor::next() {
  const Token& token = peek();
  if (token.kind == Token::kEnd) fail("more text");
  ++position_;
  return token;
}

bool Cursor::accept(char c) {
  if (!peek().is(c)) return false;
  ++position_;
  return true;
}

void Cursor::expect(char c) {
  const char text[] = {'\'', c, '\'', '\0'};
  if (!accept(c)) fail(text);
}

std::string_view Cursor::word() {
  if (peek().kind != Token::kWord) fail("a name");
  return next().text;
}

uint64_t Cursor::unsigned_number() {
  if (peek().kind != Token::kNumber) fail("a number");
  Operand value = literal();
  if (value.kind != Operand::kInteger) fail("an integer before this");
  return static_cast<uint64_t>(value.bits);
}

uint64_t Cursor::number_within(const char* what, uint64_t least, uint64_t most) {
  int at = line();
  uint64_t value = unsigned_number();
  if (value < least || value > most) {
    fault("line %d: the number of %s is %" PRIu64 "; %" PRIu64 " to %" PRIu64 " are allowed", at,
          what, value, least, most);
  }
  return value;
}

std::vector<uint64_t> Cursor::numbers(std::size_t most) {
  std::vector<uint64_t> result{unsigned_number()};
  while (result.size() < most && accept(',')) result.push_back(unsigned_number());
  return result;
}

Operand Cursor::literal() {
  const int at = line();
  bool negative = accept('-');
  if (peek().kind != Token::kNumber) fail("a number");
  std::string text(next().text);
  Operand result;
  char prefix = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  char* end = nullptr;
  errno = 0;
  if (prefix == 'f' || prefix == 'd') {
    result.kind = prefix == 'f' ? Operand::kFloat32 : Operand::kFloat64;
    uint64_t bits = std::strtoull(text.c_str() + 2, &end, 16);
    if (negative) bits ^= uint64_t{1} << (prefix == 'f' ? 31 : 63);
    result.bits = static_cast<int64_t>(bits);
  } else if (prefix != 'x' && text.find_first_of(".eE") != std::string::npos) {
    result.kind = Operand::kFloat64;
    double value = std::strtod(text.c_str(), &end);
    if (negative) value = -value;
    std::memcpy(&result.bits, &value, sizeof(value));
  } else {
    result.kind = Operand::kInteger;
    bool binary = prefix == 'b';
    uint64_t value = binary ? std::strtoull(text.c_str() + 2, &end, 2)
                            : std::strtoull(text.c_str(), &end, 0);
    result.bits = static_cast<int64_t>(negative ? 0 - value : value);
  }
  if (*end == 'U') ++end;
  if (*end != '\0') fault("line %d: '%s' is not a number", at, shown(text).c_str());
  // What strtod makes of numbers beyond all doubles, infinity and zero, is what they are.
  if (errno == ERANGE && result.kind != Operand::kFloat64) {
    fault("line %d: the number '%s' does not fit into 64 bits", at, shown(text).c_str());
  }
  return result;
}

void Cursor::skip_line() {
  int current = line();
  while (peek().kind != Token::kEnd && line() == current) ++position_;
}

void Cursor::skip_nested(char open, char close) {
  expect(open);
  for (int depth = 1; depth > 0;) {
    const Token& token = next();
    depth += token.is(open) ? 1 : token.is(close) ? -1 : 0;
  }
}

void Cursor::skip_braces() { skip_nested('{', '}'); }

void Cursor::skip_parentheses() { skip_nested('(', ')'); }

void Cursor::fail(const char* expected) const {
  const Token& token = peek();
  if (token.kind == Token::kEnd) {
    fault("line %d: expected %s, found the end of the PTX", token.line, expected);
  }
  fault("line %d: expected %s, found '%s'", token.line, expected, shown(token.text).c_str());
}

}  // namespace warploom::emulator::ptx
