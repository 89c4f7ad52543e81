#include "emulator/ptx/lexer.h"

#include <cctype>
#include <cstddef>

#include "emulator/base/fault.h"

namespace warploom::emulator::ptx {
namespace {

bool starts_word(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

bool continues_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    tokens.reserve(source_.size() / 5);
    do {
      tokens.push_back(next());
    } while (tokens.back().kind != Token::kEnd);
    return tokens;
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }

  void skip_blank() {
    for (;;) {
      char c = peek();
      if (c == '\n') ++line_;
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++position_;
      } else if (c == '/' && peek(1) == '/') {
        while (peek() != '\n' && peek() != '\0') ++position_;
      } else if (c == '/' && peek(1) == '*') {
        skip_comment();
      } else {
        return;
      }
    }
  }

  void skip_comment() {
    int begin = line_;
    for (position_ += 2; !(peek() == '*' && peek(1) == '/'); ++position_) {
      if (peek() == '\0') fault("line %d: the comment has no end", begin);
      if (peek() == '\n') ++line_;
    }
    position_ += 2;
  }

  Token next() {
    skip_blank();
    std::size_t begin = position_;
    char c = peek();
    Token::Kind kind = Token::kPunct;
    if (c == '\0') {
      kind = Token::kEnd;
    } else if (starts_word(c)) {
      kind = Token::kWord;
      // "::" belongs to a word ("shared::cta"), one colon ends a label. Directives need no blank
      // between them: ".reg.b32" is two words.
      ++position_;
      while (continues_word(peek()) || (peek() == ':' && peek(1) == ':')) {
        if (c == '.' && peek() == '.') break;
        position_ += peek() == ':' ? 2 : 1;
      }
    } else if (is_digit(c)) {
      kind = Token::kNumber;
      while (continues_number(begin)) ++position_;
    } else if (c == '"') {
      return string();
    } else if (std::string_view("{}()[]<>,;:=+-!|@*&~").find(c) != std::string_view::npos) {
      ++position_;
    } else {
      fault("line %d: the character '%c' (0x%02x) is not PTX", line_, c,
            static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
    return {kind, source_.substr(begin, position_ - begin), line_};
  }

  bool continues_number(std::size_t begin) const {
    char c = peek();
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.') return true;
    bool exponent = position_ > begin && (source_[position_ - 1] | 0x20) == 'e' &&
                    source_.substr(begin, 2) != "0x" && source_.substr(begin, 2) != "0f";
    return exponent && (c == '+' || c == '-');
  }

  Token string() {
    std::size_t begin = ++position_;
    while (peek() != '"') {
      if (peek() == '\0' || peek() == '\n') fault("line %d: the string has no end", line_);
      ++position_;
    }
    return {Token::kString, source_.substr(begin, position_++ - begin), line_};
  }

  std::string_view source_;
  std::size_t position_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace warploom::emulator::ptx
