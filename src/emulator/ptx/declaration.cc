#include "emulator/ptx/declaration.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "emulator/exec/fault.h"

namespace warploom::emulator::ptx {
namespace {

// Space, alignment and type, which precede the names; resets nothing else.
Variable parse_head(Cursor& cursor) {
  Variable head;
  bool pointer = false;  // attributes after .ptr describe what the parameter points to
  bool typed = false;
  while (cursor.peek().kind == Token::kWord && cursor.peek().text[0] == '.') {
    std::string_view word = cursor.word();
    Type type = parse_type(word.substr(1));
    if (type != Type::kNone) {
      head.type = type;
      typed = true;
    } else if (word == ".align") {
      auto alignment = static_cast<uint32_t>(cursor.unsigned_number());
      if (!pointer) head.alignment = alignment;
    } else if (word == ".ptr") {
      pointer = true;
    } else if (word == ".attribute") {
      cursor.skip_parentheses();  // .managed, .unified: all memory is the host's
    } else if (pointer && (word == ".global" || word == ".shared" || word == ".const" ||
                           word == ".local")) {
      continue;
    } else if (word == ".global") {
      head.space = Space::kGlobal;
    } else if (word == ".const") {
      head.space = Space::kConst;
    } else if (word == ".shared") {
      head.space = Space::kShared;
    } else if (word == ".local") {
      head.space = Space::kLocal;
    } else if (word == ".param") {
      head.space = Space::kParam;
    } else {
      fault("line %d: unknown directive '%.*s'", cursor.line(), static_cast<int>(word.size()),
            word.data());
    }
  }
  if (!typed) cursor.fail("a type before this");
  head.alignment = std::max(head.alignment, static_cast<uint32_t>(type_bits(head.type)) / 8);
  return head;
}

// "name", "name+4" or "generic(name)": known when the module is loaded.
void append_name(Cursor& cursor, Variable& variable) {
  Relocation relocation;
  relocation.at = variable.initial.size();
  bool wrapped = cursor.peek().is("generic");
  if (wrapped) {
    cursor.next();
    cursor.expect('(');
  }
  relocation.name = std::string(cursor.word());
  if (wrapped) cursor.expect(')');
  if (cursor.accept('+')) relocation.addend = cursor.literal().bits;
  if (type_bits(variable.type) != 64) cursor.fail("a 64-bit variable for an address");
  variable.relocations.push_back(relocation);
  variable.initial.resize(variable.initial.size() + 8);
}

void append_value(Cursor& cursor, Variable& variable) {
  if (cursor.peek().kind == Token::kWord) {
    append_name(cursor, variable);
    return;
  }
  Operand value = cursor.literal();
  uint64_t bits = static_cast<uint64_t>(value.bits);
  if (value.kind == Operand::kFloat64 && variable.type == Type::kF32) {
    double wide;
    std::memcpy(&wide, &bits, sizeof(wide));
    auto narrow = static_cast<float>(wide);
    bits = 0;
    std::memcpy(&bits, &narrow, sizeof(narrow));
  }
  for (int bit = 0; bit < type_bits(variable.type); bit += 8) {
    variable.initial.push_back(static_cast<uint8_t>(bits >> bit));
  }
}

// Dimensions of an array with an initial value, as nested braces.
constexpr int kMostDimensions = 8;

void parse_initializer(Cursor& cursor, Variable& variable, int depth) {
  if (depth > kMostDimensions) cursor.fail("fewer dimensions");
  if (!cursor.accept('{')) {
    append_value(cursor, variable);
    return;
  }
  while (!cursor.accept('}')) {
    if (cursor.peek().is('{')) {
      parse_initializer(cursor, variable, depth + 1);
    } else {
      append_value(cursor, variable);
    }
    cursor.accept(',');
  }
}

std::unique_ptr<Variable> parse_name(Cursor& cursor, const Variable& head) {
  auto result = std::make_unique<Variable>(head);
  result->name = std::string(cursor.word());
  result->bytes = static_cast<uint64_t>(type_bits(head.type)) / 8;
  while (cursor.accept('[')) {
    result->bytes *= cursor.peek().is(']') ? 0 : cursor.unsigned_number();
    cursor.expect(']');
  }
  if (cursor.accept('=')) {
    parse_initializer(cursor, *result, 0);
    result->bytes = std::max<uint64_t>(result->bytes, result->initial.size());
  }
  return result;
}

}  // namespace

std::vector<std::unique_ptr<Variable>> parse_variables(Cursor& cursor) {
  Variable head = parse_head(cursor);
  std::vector<std::unique_ptr<Variable>> result;
  do {
    result.push_back(parse_name(cursor, head));
  } while (cursor.accept(','));
  cursor.expect(';');
  return result;
}

Formal parse_formal(Cursor& cursor, Module& module, Function& function) {
  Formal formal;
  if (cursor.peek().is(".reg")) {
    cursor.next();
    std::string_view word = cursor.word();
    formal.type = parse_type(word.substr(1));
    if (formal.type == Type::kNone) cursor.fail("the type of a register before this");
    formal.name = std::string(cursor.word());
    formal.register_index = static_cast<int>(function.registers.size());
    function.registers.push_back(formal.type);
    return formal;
  }
  std::unique_ptr<Variable> variable = parse_parameter(cursor);
  variable->space = Space::kLocal;
  place(*variable, function.local_bytes);
  formal.name = variable->name;
  formal.type = variable->type;
  formal.variable = variable.get();
  module.variables.push_back(std::move(variable));
  return formal;
}

std::unique_ptr<Variable> parse_parameter(Cursor& cursor) {
  Variable head = parse_head(cursor);
  head.space = Space::kParam;
  return parse_name(cursor, head);
}

void place(Variable& variable, uint64_t& space_bytes) {
  uint64_t mask = variable.alignment - 1;
  variable.offset = (space_bytes + mask) & ~mask;
  space_bytes = variable.offset + variable.bytes;
}

}  // namespace warploom::emulator::ptx
