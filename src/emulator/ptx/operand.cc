#include "emulator/ptx/operand.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "emulator/base/fault.h"

namespace warploom::emulator::ptx {
namespace {

constexpr int kMostOperandNesting = 4;

}  // namespace

Operand OperandParser::operand(int depth) {
  Operand result;
  const Token& token = cursor_.peek();
  if (depth > kMostOperandNesting) cursor_.fail("a shorter operand");
  if (cursor_.accept('{')) {
    result.kind = Operand::kVector;
    do {
      result.elements.push_back(operand(depth + 1));
    } while (cursor_.accept(','));
    cursor_.expect('}');
  } else if (cursor_.accept('[')) {
    result = address(depth + 1);
  } else if (cursor_.accept('!')) {
    result = operand(depth + 1);
    result.negated = true;
  } else if (token.is('-') && cursor_.peek(1).kind == Token::kWord) {
    cursor_.next();
    result = operand(depth + 1);
    result.negated = true;
  } else if (token.is('-') || token.kind == Token::kNumber) {
    result = cursor_.literal();
  } else {
    result = name();
    if (cursor_.accept('|')) {
      Operand second = name();
      result.second = second.index;
    }
    if (cursor_.peek().is('+') && result.kind == Operand::kVariable) result.bits = offset();
  }
  return result;
}

// Offsets of addresses have 32 bits with a sign (PTX ISA, "Addresses as Operands").
int64_t OperandParser::offset() {
  bool plus = cursor_.accept('+');
  if (!plus && !cursor_.peek().is('-')) return 0;
  int line = cursor_.line();
  Operand value = cursor_.literal();
  if (value.kind != Operand::kInteger) cursor_.fail("an integer before this");
  if (value.bits != static_cast<int32_t>(value.bits)) {
    fault("line %d: the offset %lld of an address is not within -2^31 to 2^31 - 1", line,
          static_cast<long long>(value.bits));
  }
  return value.bits;
}

// [base + offset, more, ...]; "[tensor, {x, y}]".
Operand OperandParser::address(int depth) {
  Operand result;
  result.kind = Operand::kAddress;
  Operand base = operand(depth);
  result.bits = offset();
  result.elements.push_back(std::move(base));
  while (cursor_.accept(',')) result.elements.push_back(operand(depth));
  cursor_.expect(']');
  return result;
}

Operand OperandParser::name() {
  Operand result;
  std::string_view word = cursor_.word();
  if (word == "_") return result;
  result.index = scopes_.find_register(word);
  if (result.index >= 0) {
    result.kind = Operand::kRegister;
    return result;
  }
  result.name = std::string(word);
  result.variable = scopes_.find_variable(result.name);
  if (result.variable != nullptr) {
    result.kind = Operand::kVariable;
    if (result.variable->space == Space::kShared && result.variable->is_dynamic()) {
      function_.dynamic_alignment =
          std::max(function_.dynamic_alignment, result.variable->alignment);
    }
    return result;
  }
  result.kind = word[0] == '%' || word == "WARP_SZ" ? Operand::kSpecial : Operand::kName;
  return result;
}

}  // namespace warploom::emulator::ptx
