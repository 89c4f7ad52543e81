#include "emulator/ptx/declaration.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/ptx/limits.h"
#include "emulator/ptx/sizes.h"

namespace warploom::emulator::ptx {
namespace {

uint32_t parse_alignment(Cursor& cursor) {
  int line = cursor.line();
  uint64_t alignment = cursor.unsigned_number();
  if (!is_power_of_two(alignment) || alignment > kMostAlignment) {
    fault("line %d: the alignment %" PRIu64 " is not a power of two from 1 to %" PRIu64, line,
          alignment, kMostAlignment);
  }
  return static_cast<uint32_t>(alignment);
}

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
      uint32_t alignment = parse_alignment(cursor);
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
      fault("line %d: unknown directive '%s'", cursor.line(), shown(word).c_str());
    }
  }
  if (!typed) cursor.fail("a type before this");
  if (type_bits(head.type) < 8) {
    fault("line %d: variables of type .%s do not exist; they have 8 bits or more", cursor.line(),
          std::string(type_name(head.type)).c_str());
  }
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
  // Literals have 64 bits; those of a variable with more are zero.
  for (int bit = 0; bit < type_bits(variable.type); bit += 8) {
    variable.initial.push_back(bit < 64 ? static_cast<uint8_t>(bits >> bit) : uint8_t{0});
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

// The initial value decides how long an array without an extent is.
void parse_value(Cursor& cursor, Variable& variable) {
  if (variable.space != Space::kGlobal && variable.space != Space::kConst) {
    fault("line %d: '%s' has an initial value; only .global and .const variables can have one",
          variable.line, variable.name.c_str());
  }
  parse_initializer(cursor, variable, 0);
  if (variable.is_dynamic()) variable.bytes = variable.initial.size();
  if (variable.initial.size() > variable.bytes) {
    fault("line %d: '%s' has %" PRIu64 " bytes and its initial value %zu", variable.line,
          variable.name.c_str(), variable.bytes, variable.initial.size());
  }
}

std::unique_ptr<Variable> parse_name(Cursor& cursor, const Variable& head) {
  auto result = std::make_unique<Variable>(head);
  result->line = cursor.line();
  result->name = std::string(cursor.word());
  result->bytes = static_cast<uint64_t>(type_bits(head.type)) / 8;
  while (cursor.accept('[')) {
    uint64_t extent = cursor.peek().is(']') ? 0 : cursor.unsigned_number();
    result->bytes = multiply_sizes(result->bytes, extent);
    cursor.expect(']');
  }
  if (cursor.accept('=')) parse_value(cursor, *result);
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
    int bits = type_bits(formal.type);
    if (bits < 8 || bits > 64) cursor.fail("the type of a register of 8 to 64 bits before this");
    formal.name = std::string(cursor.word());
    formal.register_index = static_cast<int>(function.registers.size());
    function.registers.push_back(formal.type);
    return formal;
  }
  std::unique_ptr<Variable> variable = parse_parameter(cursor);
  variable->space = Space::kLocal;
  place(*variable, function.local_bytes, kLocalSpace);
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

const SpaceLimit kGlobalSpace{".global and .const of the module", kMostGlobalBytes};
const SpaceLimit kParameterSpace{".param of the kernel", kMostParameterBytes};
const SpaceLimit kSharedSpace{".shared of a CTA", kMostSharedBytes};
const SpaceLimit kLocalSpace{".local and .param of a thread", kMostLocalBytes};

void place(Variable& variable, uint64_t& space_bytes, const SpaceLimit& limit) {
  uint64_t offset = align_size(space_bytes, variable.alignment);
  uint64_t end = add_sizes(offset, variable.bytes);
  if (end > limit.bytes) {
    fault("line %d: with '%s' (%s bytes) %s takes %s bytes; at most %" PRIu64 " are allowed",
          variable.line, variable.name.c_str(), size_text(variable.bytes).c_str(), limit.name,
          size_text(end).c_str(), limit.bytes);
  }
  variable.offset = offset;
  space_bytes = end;
}

}  // namespace warploom::emulator::ptx
