#include "emulator/exec/isa/control/print_format.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace warploom::emulator {
namespace {

// Fields wider than any sensible one would only take memory.
constexpr int kWidest = 4096;
// CUDA C++ Programming Guide, "Formatted Output", "Limitations": what comes after so many arguments
// is printed as it stands.
constexpr uint32_t kMostArguments = 32;

struct Conversion {
  bool left = false, plus = false, space = false, alternate = false, zero = false;
  int width = 0;
  int precision = -1;
  bool wide = false;   // 8 bytes instead of 4
  int bits = 32;       // that count: 8 and 16 for hh and h
  char letter = '\0';
};

class Formatter {
 public:
  Formatter(const std::string& text, const PrintArguments& arguments)
      : text_(text), arguments_(arguments) {}

  Printed run() {
    while (position_ < text_.size()) {
      std::size_t percent = text_.find('%', position_);
      result_.text.append(text_, position_, percent - position_);
      if (percent == std::string::npos) break;
      position_ = percent + 1;
      const std::size_t before = result_.text.size();
      lacks_argument_ = false;
      Conversion conversion = parse();
      if (print(conversion) && !lacks_argument_) continue;
      result_.text.resize(before);
      result_.text.append(text_, percent, position_ - percent);
    }
    return result_;
  }

 private:
  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  bool accept(char c) {
    if (peek() != c || c == '\0') return false;
    ++position_;
    return true;
  }

  Conversion parse() {
    Conversion result;
    for (;;) {
      if (accept('-')) result.left = true;
      else if (accept('+')) result.plus = true;
      else if (accept(' ')) result.space = true;
      else if (accept('#')) result.alternate = true;
      else if (accept('0')) result.zero = true;
      else break;
    }
    const int64_t width = number();
    result.left |= width < 0;
    result.width = static_cast<int>(std::min<int64_t>(width < 0 ? -width : width, kWidest));
    // A precision below zero is none.
    if (accept('.')) {
      result.precision = static_cast<int>(std::clamp<int64_t>(number(), -1, kWidest));
    }
    if (accept('h')) result.bits = accept('h') ? 8 : 16;
    while (accept('l') || accept('z') || accept('j') || accept('t')) result.wide = true;
    accept('L');
    result.letter = peek();
    if (result.letter != '\0') ++position_;
    return result;
  }

  // In 64 bits: the negative of any argument exists.
  int64_t number() {
    if (accept('*')) return static_cast<int32_t>(take(false));
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = std::min<int64_t>(value * 10 + (text_[position_++] - '0'), kWidest);
    }
    return value;
  }

  uint64_t take(bool wide) {
    if (result_.count == kMostArguments) {
      lacks_argument_ = true;
      return 0;
    }
    ++result_.count;
    return arguments_.next(wide ? 8 : 4);
  }

  bool print(const Conversion& conversion) {
    switch (conversion.letter) {
      case 'd': case 'i': return print_signed(conversion);
      case 'u': case 'o': case 'x': case 'X': return print_unsigned(conversion);
      case 'e': case 'E': case 'f': case 'F': case 'g': case 'G': case 'a': case 'A':
        return print_double(conversion);
      case 'c': {
        pad(conversion, std::string(1, static_cast<char>(take(false))));
        return true;
      }
      case 's': {
        uint64_t address = take(true);
        std::string text = address == 0 ? "(null)" : arguments_.string(address);
        if (conversion.precision >= 0) text.resize(std::min<std::size_t>(
            text.size(), static_cast<std::size_t>(conversion.precision)));
        pad(conversion, text);
        return true;
      }
      case 'p': {
        char digits[32];
        std::snprintf(digits, sizeof(digits), "0x%llx",
                      static_cast<unsigned long long>(take(true)));
        pad(conversion, digits);
        return true;
      }
      case '%':
        result_.text += '%';
        return true;
      default:
        return false;
    }
  }

  bool print_signed(const Conversion& conversion) {
    uint64_t bits = take(conversion.wide);
    int shift = conversion.wide ? 0 : 64 - conversion.bits;
    int64_t value = static_cast<int64_t>(bits << shift) >> shift;
    bool negative = value < 0;
    uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    number_text(conversion, sign(conversion, negative), digits(magnitude, 10, false));
    return true;
  }

  bool print_unsigned(const Conversion& conversion) {
    uint64_t value = take(conversion.wide);
    if (!conversion.wide) value &= (uint64_t{1} << conversion.bits) - 1;
    bool upper = conversion.letter == 'X';
    unsigned base = conversion.letter == 'u' ? 10 : conversion.letter == 'o' ? 8 : 16;
    std::string prefix;
    if (conversion.alternate && base == 16 && value != 0) prefix = upper ? "0X" : "0x";
    std::string text = digits(value, base, upper);
    if (conversion.alternate && base == 8 && text[0] != '0') text = "0" + text;
    number_text(conversion, prefix, text);
    return true;
  }

  static std::string sign(const Conversion& conversion, bool negative) {
    return negative ? "-" : conversion.plus ? "+" : conversion.space ? " " : "";
  }

  static std::string digits(uint64_t value, unsigned base, bool upper) {
    const char* names = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    std::string text;
    do {
      text += names[value % base];
      value /= base;
    } while (value != 0);
    std::reverse(text.begin(), text.end());
    return text;
  }

  // Digits of an integer with its precision, then zeros or blanks up to the width.
  void number_text(const Conversion& conversion, const std::string& prefix, std::string text) {
    if (conversion.precision == 0 && text == "0") text.clear();
    int least = conversion.precision;
    if (least < 0 && conversion.zero && !conversion.left) {
      least = conversion.width - static_cast<int>(prefix.size());
    }
    int missing = least - static_cast<int>(text.size());
    if (missing > 0) text.insert(0, static_cast<std::size_t>(missing), '0');
    pad(conversion, prefix + text);
  }

  bool print_double(const Conversion& conversion) {
    uint64_t bits = take(true);
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    // The C library prints the value; its format has the same flags.
    std::string spec = "%";
    if (conversion.left) spec += '-';
    if (conversion.plus) spec += '+';
    if (conversion.space) spec += ' ';
    if (conversion.alternate) spec += '#';
    if (conversion.zero) spec += '0';
    spec += '*';
    if (conversion.precision >= 0) spec += '.' + std::to_string(conversion.precision);
    spec += conversion.letter;
    int size = std::snprintf(nullptr, 0, spec.c_str(), conversion.width, value);
    std::string text(static_cast<std::size_t>(std::max(size, 0)) + 1, '\0');
    std::snprintf(text.data(), text.size(), spec.c_str(), conversion.width, value);
    text.pop_back();
    result_.text += text;
    return true;
  }

  void pad(const Conversion& conversion, const std::string& text) {
    int missing = conversion.width - static_cast<int>(text.size());
    std::string blanks(static_cast<std::size_t>(std::max(missing, 0)), ' ');
    result_.text += conversion.left ? text + blanks : blanks + text;
  }

  const std::string& text_;
  const PrintArguments& arguments_;
  std::size_t position_ = 0;
  bool lacks_argument_ = false;  // the conversion that is printed
  Printed result_;
};

}  // namespace

Printed print_format(const std::string& format_text, const PrintArguments& arguments) {
  return Formatter(format_text, arguments).run();
}

}  // namespace warploom::emulator
